"""Without their setting traces cost nothing: the libraries aren't even loaded."""

import subprocess
import sys

import pytest

from reservation_core.runtime.settings.components import CommonSettings
from reservation_core.runtime.settings.error import SettingsError
from reservation_core.runtime.wiring import open_traces

PROGRAM = """
import sys
import api_service.__main__, reservation_processor.__main__
sys.exit(" ".join(name for name in sys.modules if name.startswith("opentelemetry.sdk") or "otlp" in name))
"""


def test_traces_are_off_by_default() -> None:
    assert open_traces(CommonSettings(), "test") is None
    assert open_traces(CommonSettings(traces_url=""), "test") is None  # type: ignore[arg-type]


def test_programs_load_nothing_for_traces_that_are_off() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert ran.stderr.strip() == ""


def test_traces_without_the_extra_are_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "reservation_core.adapters.otlp_traces"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace.export", None)
    settings = CommonSettings(traces_url="http://127.0.0.1:4318/v1/traces")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match=r"gpu-dev-server\[server,traces\]"):
        open_traces(settings, "test")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://collector:4318", "usually /v1/traces"),
        ("http://ada:hunter2@collector:4318/v1/traces", "OTEL_EXPORTER_OTLP_HEADERS"),
        ("http://collector:4318/v1/traces?key=hunter2", "OTEL_EXPORTER_OTLP_HEADERS"),
    ],
)
def test_an_address_that_can_not_work_or_has_a_secret_is_refused(url: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        CommonSettings(traces_url=url)  # type: ignore[arg-type]

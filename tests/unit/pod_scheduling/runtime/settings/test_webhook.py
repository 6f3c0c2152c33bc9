"""The webhook's settings, as its environment has them."""

import os

import pydantic
import pytest

from pod_scheduling.domain.maps.map_injection import InjectionRules
from pod_scheduling.runtime.settings.webhook import WebhookSettings


@pytest.fixture(autouse=True)
def _as_a_program_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GPU_DEV_")]:
        monkeypatch.delenv(name)


def test_without_any_the_map_is_read_for_the_scheduler_of_the_guide() -> None:
    assert WebhookSettings().injection == InjectionRules("gpu-scheduler", ("nvidia.com/gpu", "amd.com/gpu"), False)


def test_what_the_map_goes_by_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_DEV_WEBHOOK__SCHEDULER_NAME", "mine")
    monkeypatch.setenv("GPU_DEV_WEBHOOK__OVERRIDE_DEVICES", "true")
    monkeypatch.setenv("GPU_DEV_GPU__RESOURCE_NAMES", "example.org/gpu, example.org/mig")
    rules = InjectionRules("mine", ("example.org/gpu", "example.org/mig"), override_devices=True)
    assert WebhookSettings().injection == rules


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SCHEDULER_NAME", ""),
        ("DRAIN_S", "-1"),
        ("DRAIN_S", "601"),
        ("CERTIFICATE_LOOK_S", "0"),
        ("MAX_BODY_BYTES", "1"),
        ("OVERRIDE_DEVICES", "perhaps"),
    ],
)
def test_what_is_out_of_bounds_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"GPU_DEV_WEBHOOK__{name}", value)
    with pytest.raises(pydantic.ValidationError, match=name.lower()):
        WebhookSettings()

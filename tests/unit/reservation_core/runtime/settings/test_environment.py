"""Variables that nothing reads: found, and told apart from those of other programs and of Kubernetes."""

import re
from pathlib import Path

import pytest

from pod_scheduling.runtime.settings.admission import AdmissionSettings
from pod_scheduling.runtime.settings.scheduler import SchedulerSettings
from pod_scheduling.runtime.settings.webhook import WebhookSettings
from reservation_core.domain.pods.pod_environment import JOB_ID_VARIABLE
from reservation_core.runtime.settings.components import CommonSettings, StandaloneSettings, UpdaterSettings
from reservation_core.runtime.settings.environment import ELSEWHERE, known_names, read_settings, unknown_variables
from reservation_core.runtime.settings.error import SettingsError

ROOT = Path(__file__).parents[5]


def test_what_any_program_reads_is_known() -> None:
    variables = [
        "GPU_DEV_LISTEN", "gpu_dev_home", "GPU_DEV_SMTP__HOST", "GPU_DEV_SMTP_PASSWORD", "GPU_DEV_NODE_NAME",
        "GPU_DEV_TOKEN", "GPU_DEV_SERVER", "GPU_DEV_SECRETS_DIR", JOB_ID_VARIABLE, "GPU_DEV_NODE", "GPU_DEV_POD",
        "GPU_DEV_JOB_TOKEN", "GPU_DEV_WEBHOOK__API_URL", "GPU_DEV_ENFORCEMENT__ENABLED", "PATH", "GPU_DEVELOPMENT",
    ]  # fmt: skip
    assert unknown_variables(dict.fromkeys(variables, "x")) == []


def test_settings_of_the_packages_above_are_known_whether_these_are_loaded_or_not() -> None:
    for kind in (AdmissionSettings, SchedulerSettings, WebhookSettings):
        above = {field.upper() for field in set(kind.model_fields) - set(CommonSettings.model_fields)}
        assert above <= ELSEWHERE


def test_every_variable_of_the_documents_is_known() -> None:
    texts = [file.read_text() for file in [*(ROOT / "docs").rglob("*.md"), *(ROOT / "charts").rglob("*.yaml")]]
    found = {name for text in texts for name in re.findall(r"\bGPU_DEV_[A-Z][A-Z0-9_]*[A-Z0-9]\b", text)}
    found -= {"GPU_DEV_IMAGE_BUILD", "GPU_DEV_LISTN"}  # for a test, and the example of a mistyped one
    assert "GPU_DEV_LISTEN" in found
    assert unknown_variables(dict.fromkeys(found, "x")) == []


@pytest.mark.parametrize("service", ["GPU_DEV_", "GPU_DEV_API_"])
def test_what_kubernetes_sets_for_services_is_nobodys_mistake(service: str) -> None:
    names = ["SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT_8080_TCP", "PORT_8080_TCP_ADDR", "PORT"]
    assert unknown_variables({service + name: "tcp://10.0.0.1:8080" for name in names}) == []


@pytest.mark.parametrize("name", ["LISTEN_PORT", "HTTP_PORT", "METRICS_PORT", "TEST_LISTEN", "LISTEN__PORT"])
def test_what_only_looks_like_an_address_of_a_service_is_said(name: str) -> None:
    assert unknown_variables({f"GPU_DEV_{name}": "8080"}) == [f"GPU_DEV_{name}"]


@pytest.mark.parametrize("name", ["DATABASE_USER", "DATABASE_REPLICA", "HTTPS", "NODES", "PODS", "NOTICE", "LISTEN_ON"])
def test_a_variable_of_a_script_stops_no_program(name: str) -> None:
    environ = {f"GPU_DEV_{name}": "x"}
    assert unknown_variables(environ) == [f"GPU_DEV_{name}"]
    read_settings(UpdaterSettings, environ)


def test_a_name_like_none_is_only_said() -> None:
    environ = {"GPU_DEV_FAVOURITE_COLOUR": "blue"}
    assert unknown_variables(environ) == ["GPU_DEV_FAVOURITE_COLOUR"]
    read_settings(UpdaterSettings, environ)


def test_no_setting_is_taken_for_another_mistyped() -> None:
    read_settings(UpdaterSettings, {f"GPU_DEV_{name}": "x" for name in known_names()})


@pytest.mark.parametrize(
    ("name", "meant"), [("GPU__TYPS", "GPU__TYPES"), ("KUBERNETES__NAMSPACE", "KUBERNETES__NAMESPACE")]
)
def test_a_mistyped_name_in_a_section_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, meant: str) -> None:
    monkeypatch.setenv(f"GPU_DEV_{name}", "x")
    with pytest.raises(SettingsError, match=rf"GPU_DEV_{name}: .* Did you mean GPU_DEV_{meant}\?"):
        read_settings(UpdaterSettings)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("DATABASE_URI", "DATABASE_URL"),
        ("LISTN", "LISTEN"),
        ("LISTEEN", "LISTEN"),
        ("LSITEN", "LISTEN"),
        ("DATABASE_URLL", "DATABASE_URL"),
        ("KUBERNETS__NAMESPACE", "KUBERNETES__NAMESPACE"),
        ("WEBB__PUBLIC_URL", "WEB__PUBLIC_URL"),
        ("NOTICE__ALLOW", "NOTICES__ALLOW"),
    ],
)
def test_a_mistyped_name_is_refused(name: str, meant: str) -> None:
    with pytest.raises(SettingsError, match=rf"GPU_DEV_{name}: .* Did you mean GPU_DEV_{meant}\?"):
        read_settings(UpdaterSettings, {f"GPU_DEV_{name}": "x"})


def test_all_that_is_wrong_is_said_at_once_and_in_plain_words(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {
        "GPU__TYPS": "There is no such setting. Did you mean GPU_DEV_GPU__TYPES? Correct its name, or remove it.",
        "ENFORCEMENT__NAMESPACE_LABEL": "It must be a label, such as team=vision.",
        "JOB_SERVER": "It must be an address that begins with https:// or http://.",
        "LISTN": "There is no such setting. Did you mean GPU_DEV_LISTEN? Correct its name, or remove it.",
        "LOCAL_MEMORY": "It must be a number of bytes, or one such as 64Gi.",
        "LOG_JSON": "It must be true or false.",
        "SAMPLE_EVERY_S": "It must be a number.",
        "SMTP__SENDER": "It must be an e-mail address.",
        "TRACES_URL": "It must be an address such as https://gpus.example.org.",
        "WARN_BEFORE_S": "It must be a whole number.",
    }
    for name in wrong:
        monkeypatch.setenv(f"GPU_DEV_{name}", "some,thing")
    with pytest.raises(SettingsError) as refused:
        read_settings(StandaloneSettings)
    lines = {f"GPU_DEV_{name}: {text}" for name, text in wrong.items()}
    assert {*str(refused.value).splitlines()} == lines


def test_what_is_no_json_is_said_beside_what_is_mistyped(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GPU__TYPES", "LISTN"):
        monkeypatch.setenv(f"GPU_DEV_{name}", "x")
    with pytest.raises(SettingsError) as refused:
        read_settings(StandaloneSettings)
    mistyped, unread = str(refused.value).splitlines()
    assert mistyped.startswith("GPU_DEV_LISTN: There is no such setting.")
    assert unread == 'GPU_DEV_GPU: all of it must be JSON, as in ["a"]. Correct the environment and start again.'


@pytest.mark.parametrize("name", ["PODS__IMAGE", "TOKENS__X", "NODES__X"])
def test_a_section_of_somebody_else_s_is_no_slip(name: str) -> None:
    """One letter apart from what a job has or from a setting without parts: these have nothing below them."""
    read_settings(UpdaterSettings, {f"GPU_DEV_{name}": "x"})

"""The guides to Kubernetes and to operating say what the code says: settings, accounts, alerts, messages, metrics."""

import json
import re
from pathlib import Path

from reservation_core.adapters.kubernetes.pods.pod_defaults import PodDefaults
from reservation_core.domain.statuses import BookingReason, ReasonCode
from reservation_core.runtime.settings.components import NodeAgentSettings, StandaloneSettings
from reservation_core.runtime.settings.gpus import GpuSettings
from reservation_core.runtime.settings.kubernetes import KubernetesSettings
from tests.kubernetes.permissions import granted
from tests.read_yaml import read_yaml

ROOT = Path(__file__).parents[4]
GUIDE = (ROOT / "docs" / "guides" / "kubernetes.md").read_text()
OPERATING = (ROOT / "docs" / "guides" / "operating.md").read_text()
# Not ours to change.
_OTHERS_MESSAGES = {'RuntimeClass "nvidia" not found', "violates PodSecurity"}
ROWS = dict(re.findall(r"^\| `(GPU_DEV_\w+)` \| (.+?) \|", GUIDE, re.MULTILINE))


def settings() -> dict[str, object]:
    """Every variable and its default."""
    nested = {"GPU": GpuSettings(), "KUBERNETES": KubernetesSettings()}
    fields = {**NodeAgentSettings.model_fields, **StandaloneSettings.model_fields}
    plain = {f"GPU_DEV_{name.upper()}": field.default for name, field in fields.items()}
    return plain | {
        f"GPU_DEV_{part}__{name.upper()}": getattr(model, name)
        for part, model in nested.items()
        for name in type(model).model_fields
    }


def test_the_table_has_every_setting_of_kubernetes_and_none_that_is_not_there() -> None:
    assert {name for name in settings() if "__" in name} <= ROWS.keys()
    assert {*re.findall(r"GPU_DEV_[A-Z_]+[A-Z]", GUIDE)} - {"GPU_DEV_NODE", "GPU_DEV_JOB_ID"} <= settings().keys()


def test_the_table_has_the_defaults() -> None:
    for name, said in ROWS.items():
        default = settings()[name]
        found = re.fullmatch(r"`(.+)`", said)
        if found is not None:
            assert found[1] == (default if isinstance(default, str) else json.dumps(default)), name
        elif name.endswith("EXTENSION_ROOM_S"):
            assert (said, default) == ("30 days", 86_400 * 30)
        elif said.isdecimal() and default is not None:
            assert default == int(said), name
        else:
            assert default in (None, ""), name


def test_the_example_of_pod_defaults_is_one_and_says_everything() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
    assert PodDefaults.model_validate(read_yaml(example)).model_fields_set == set(PodDefaults.model_fields)


def test_the_table_of_accounts_has_their_verbs() -> None:
    rows = dict(re.findall(r"^\| `([a-z-]+)`(?: \([^|]*\))? \| (.*`.*) \|$", GUIDE, re.MULTILINE))
    for account in (
        "api-service",
        "ssh-gateway",
        "reservation-processor",
        "availability-updater",
        "reservation-expiry",
        "node-agent",
    ):
        told = {verb for verbs in re.findall(r"`([a-z ]+)`", rows[account]) for verb in verbs.split()}
        assert told == {permission.verb for permission in granted(account, enforcing=False)}, account


def test_what_ending_pods_needs_is_told_where_it_is_switched_on() -> None:
    guide = (ROOT / "docs" / "guides" / "enforcing-bookings.md").read_text()
    (sentence,) = re.findall(r"^It gives [^.]*`list watch`[^.]*\.", guide, re.MULTILINE)
    told = {verb for verbs in re.findall(r"`([a-z ]+)`", sentence) for verb in verbs.split()}
    more = granted("reservation-expiry") - granted("reservation-expiry", enforcing=False)
    assert told == {permission.verb for permission in more}
    assert "kubectl apply -f deploy/enforcement/" in guide


def section(title: str) -> str:
    """A section of the guide to operating."""
    return OPERATING.partition(f"\n### {title}\n")[2].partition("\n### ")[0]


def test_every_alert_is_explained_and_no_other() -> None:
    chart = ROOT / "charts" / "gpu-dev-server"
    rules = (chart / "files" / "alerts.yaml").read_text() + (chart / "templates" / "monitoring.yaml").read_text()
    told = re.findall(r"^\| `(GpuDev\w+)` \|", section("By alert"), re.MULTILINE)
    assert sorted(told) == sorted(re.findall(r"- alert: (\w+)", rules))


def test_reason_codes_that_are_explained_are_there() -> None:
    told = re.findall(r"`([a-z_]+)`", "".join(re.findall(r"^\| (`.+?) \|", section("By reason code"), re.MULTILINE)))
    assert len(told) > 5
    assert {*told} <= {*ReasonCode, *BookingReason}


def test_messages_and_metrics_that_are_explained_are_there() -> None:
    packages = [ROOT / name for name in ("reservation_core", "api_service", "reservation_processor", "standalone")]
    sources = [path.read_text() for package in packages for path in package.rglob("*.py")]
    sources += [path.read_text() for path in (ROOT / "charts" / "gpu-dev-server" / "files").glob("*.sh")]
    code = re.sub(r'"\s*\n\s*f?"', "", "\n".join(sources))
    seen = section("By what you see") + section("On Kubernetes") + section("An empty volume")
    first_column = "\n".join(re.findall(r"^\| (.+?) \|", seen, re.MULTILINE))
    messages = {message.strip("… ") for message in re.findall(r"`([^`\n]+ [^`\n]+)`", first_column)} - _OTHERS_MESSAGES
    messages |= {"a step is postponed; trying again", "a step failed; trying again", "a loop has recovered"}
    metrics = {name.removesuffix("_total") for name in re.findall(r"`(gpu_dev_\w+)[`{]", OPERATING)} - {
        "gpu_dev_database_url", "gpu_dev_database_password", "gpu_dev_database_replica_url", "gpu_dev_smtp_password"
    }  # fmt: skip
    assert {text for text in messages | metrics if text not in code and not text.startswith("gpu-dev ")} == set()


def test_settings_of_the_guide_to_operating_are_there() -> None:
    told = {*re.findall(r"GPU_DEV_[A-Z_]+[A-Z]", OPERATING)}
    listed = {*re.findall(r"^\| `(GPU_DEV_\w+)`", (ROOT / "docs/reference/settings.md").read_text(), re.MULTILINE)}
    elsewhere = {"GPU_DEV_LISTN", "GPU_DEV_SERVER", "GPU_DEV_TOKEN", "GPU_DEV_JOB_ID", "GPU_DEV_SECRETS_DIR"}
    assert {name for name in told - elsewhere if not any(known.startswith(name) for known in listed)} == set()

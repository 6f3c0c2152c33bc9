"""The guide to Kubernetes says what the code says: its settings, its example of pod defaults, its table of accounts."""

import json
import re
from pathlib import Path

from reservation_core.adapters.kubernetes.pods.pod_defaults import PodDefaults
from reservation_core.runtime.settings.components import GpuSettings, KubernetesSettings, StandaloneSettings
from tests.kubernetes.permissions import granted
from tests.read_yaml import read_yaml

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "kubernetes.md").read_text()
ROWS = dict(re.findall(r"^\| `(GPU_DEV_\w+)` \| (.+?) \|", GUIDE, re.MULTILINE))


def settings() -> dict[str, object]:
    """Every variable and its default."""
    nested = {"GPU": GpuSettings(), "KUBERNETES": KubernetesSettings()}
    plain = {f"GPU_DEV_{name.upper()}": field.default for name, field in StandaloneSettings.model_fields.items()}
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
        "reservation-processor",
        "availability-updater",
        "reservation-expiry",
        "node-agent",
    ):
        told = {verb for verbs in re.findall(r"`([a-z ]+)`", rows[account]) for verb in verbs.split()}
        assert told == {permission.verb for permission in granted(account, enforcing=False)}, account


def test_what_ending_pods_needs_is_told_where_it_is_switched_on() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guides" / "enforcing-bookings.md").read_text()
    (sentence,) = re.findall(r"^It gives [^.]*`list watch`[^.]*\.", guide, re.MULTILINE)
    told = {verb for verbs in re.findall(r"`([a-z ]+)`", sentence) for verb in verbs.split()}
    more = granted("reservation-expiry") - granted("reservation-expiry", enforcing=False)
    assert told == {permission.verb for permission in more}
    assert "kubectl apply -f deploy/enforcement/" in guide

"""The manifests in `deploy/manifests`, for those who don't use Helm, as they come from the charts, and the
defaults that the library chart's template `gpu-dev.defaults` reads.

`python -m tests.chart.plain_manifests` writes them.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.chart.rendering import CHARTS, JsonObject, render
from tests.read_yaml import read_yaml

FOLDER = Path(__file__).parents[2] / "deploy" / "manifests"
LIBRARY = CHARTS / "gpu-dev-library"
SYSTEM, TESTS, BOOKING = "gpu-scheduler-system", "gpu-scheduler-tests", "gpu-booking"
ADMISSION = "kube-system"

_HELMS_OWN = ("app.kubernetes.io/managed-by", "helm.sh/chart", "app.kubernetes.io/instance")
_KUBERNETES = "v1.30.0"

_SAID = {
    "webhook.yaml": """\
What the API server asks the webhook about, the static rules as a policy of its own, and the job that renews the
certificate. For Kubernetes 1.30 and newer; for an older one take the chart, which leaves out what that lacks.
The authority has to be named once the Secret gpu-scheduler-webhook-tls is there:
  python -m admission_webhook certs --service gpu-scheduler-webhook --namespace gpu-scheduler-system \\
    --secret gpu-scheduler-webhook-tls --configuration gpu-scheduler-webhook
""",
    "webhook-service.yaml": "Where the API server reaches the webhook.\n",
    "gpu-scheduler.yaml": """\
The scheduler and the webhook, two containers of one pod, twice; and what they may do.
The namespace gpu-scheduler-system and the Secret gpu-scheduler-webhook-tls have to be there before.
""",
    "gpu-scheduler-check.yaml": "Five pods that say where they run and which cards they see.\n",
    "gpu-admission.yaml": """\
A second kube-scheduler with the extender beside it in one pod, twice: nobody else reaches the extender, which binds
pods for whoever asks it. Pods choose it by schedulerName: gpu-quota-scheduler.
Set kube-scheduler's image to your cluster's own version.
""",
    "gpu-booking.yaml": """\
What enforces bookings in namespaces with the label gpu-dev/enforce-bookings=true. For Kubernetes 1.30 and newer.
Write your service's address after GPU_DEV_WEBHOOK__API_URL, and whose pods are whose into gpu-booking-webhook-owners.
The namespace gpu-booking and the Secret gpu-booking-webhook-token (with the key token) have to be there before. Then:
  python -m admission_webhook certs --service gpu-booking-webhook --namespace gpu-booking \\
    --secret gpu-booking-webhook-tls --configuration gpu-booking-webhook
""",
}


def _of_webhook(each: JsonObject) -> bool:
    return each["kind"].endswith(("WebhookConfiguration", "AdmissionPolicy", "AdmissionPolicyBinding")) or each[
        "metadata"
    ]["name"].endswith("-certificates")


_BELONGS: dict[str, Callable[[JsonObject], bool]] = {
    "webhook.yaml": _of_webhook,
    "webhook-service.yaml": lambda each: each["kind"] == "Service" and each["metadata"]["name"].endswith("-webhook"),
    "gpu-scheduler-check.yaml": lambda each: each["metadata"]["name"] == "gpu-scheduler-check",
    "gpu-scheduler.yaml": lambda each: each["kind"] != "Secret",
}


def written() -> dict[str, str]:
    """The text of each file, by its name."""
    values = {"image": {"tag": "latest"}, "check": {"enabled": True, "namespace": TESTS, "image": {"tag": "latest"}}}
    left = render("gpu-scheduler", values, namespace=SYSTEM, kube_version=_KUBERNETES)
    files = {}
    for name, belongs in _BELONGS.items():
        chosen = [manifest for manifest in left if belongs(manifest)]
        left = [manifest for manifest in left if not belongs(manifest)]
        files[name] = _text(name, "gpu-scheduler", chosen)
    values = {
        "image": {"tag": "latest"},
        "apiUrl": "https://gpu-dev.example.org/v1/schedulability",
        "existingSecret": "gpu-booking-webhook-token",
    }
    booking = render("gpu-booking", values, namespace=BOOKING, kube_version=_KUBERNETES)
    chosen = [manifest for manifest in booking if manifest["kind"] != "Secret"]
    files["gpu-booking.yaml"] = _text("gpu-booking.yaml", "gpu-booking", chosen)
    admission = render("gpu-admission", {"image": {"tag": "latest"}}, namespace=ADMISSION, kube_version=_KUBERNETES)
    return files | {"gpu-admission.yaml": _text("gpu-admission.yaml", "gpu-admission", admission)}


def library_of(chart: str) -> Path:
    """Where a chart has the library: Helm fetches nothing that is there."""
    return CHARTS / chart / "charts" / LIBRARY.name


def users_of_the_library() -> list[str]:
    """The charts that depend on it."""
    charts = (read_yaml(path.read_text()) for path in sorted(CHARTS.glob("*/Chart.yaml")))
    return [
        chart["name"] for chart in charts if any(on["name"] == LIBRARY.name for on in chart.get("dependencies", ()))
    ]


# Maps whose keys are the user's: no template names one of them.
_FREE = {
    "annotations", "configuration", "defaultRequest", "hard", "labels", "nodeSelector", "parameters", "podDefaults",
    "resources", "timeouts",
}  # fmt: skip


def defaults_file(chart: str) -> Path:
    """Where a chart's defaults lie for its templates: Helm shows them every file but values.yaml."""
    return CHARTS / chart / "files" / "defaults.yaml"


def defaults_of(chart: str) -> str:
    """The text of that file: each map of values.yaml by its path, without its inner maps, which have their own."""
    values = read_yaml((CHARTS / chart / "values.yaml").read_text())
    text = yaml.safe_dump(dict(_maps("values", values)), sort_keys=True, width=120, allow_unicode=True)
    return "# Made from values.yaml by `make manifests`; change it there.\n" + text


def _maps(path: str, values: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    inner = {name for name, value in values.items() if value and isinstance(value, dict) and name not in _FREE}
    yield path, {name: value for name, value in values.items() if name not in inner and value is not None}
    for name in sorted(inner):
        yield from _maps(f"{path}.{name}", values[name])


class _Readable(yaml.SafeDumper):
    """Texts of several lines as such."""


def _written_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Readable.add_representer(str, _written_text)


def _text(name: str, chart: str, documents: list[JsonObject]) -> str:
    said = "".join(f"# {line}\n" for line in _SAID[name].splitlines())
    made = f"# Made from charts/{chart} by `make manifests`; change it there.\n"
    plain = [_plain(document) for document in documents]
    return said + made + yaml.dump_all(plain, Dumper=_Readable, sort_keys=False, width=120, allow_unicode=True)


def _plain(document: JsonObject) -> JsonObject:
    """Without what only Helm needs, and without an authority of nobody's."""
    _drop(document)
    for webhook in document.get("webhooks", ()):
        webhook["clientConfig"].pop("caBundle", None)
    return document


def _drop(part: object) -> None:
    if isinstance(part, dict):
        for key in _HELMS_OWN:
            part.pop(key, None)
        for nested in part.values():
            _drop(nested)
    elif isinstance(part, list):
        for nested in part:
            _drop(nested)


if __name__ == "__main__":
    for user in users_of_the_library():
        defaults_file(user).parent.mkdir(exist_ok=True)
        defaults_file(user).write_text(defaults_of(user))
    FOLDER.mkdir(exist_ok=True)
    for file, text in written().items():
        (FOLDER / file).write_text(text)

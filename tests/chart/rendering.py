"""Charts as Helm renders them, without a helm binary and without a cluster."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import helm_python
import yaml

CHARTS = Path(__file__).parents[2] / "charts"
VERSION: str = yaml.safe_load((CHARTS / "gpu-dev-server" / "Chart.yaml").read_text())["appVersion"]

JsonObject = dict[str, Any]
NEWEST = "v1.35.0"
OLDEST = "v1.24.0"


def render(
    chart: str,
    values: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    namespace: str = "gpu-scheduler-system",
    kube_version: str = NEWEST,
    upgrade: bool = False,
) -> list[JsonObject]:
    """Every object of a chart. Raises HelmValuesError and HelmRenderError as the library does."""
    chosen = {"kubeVersion": kube_version, **(values or {})}
    return documents_of(CHARTS / chart, chosen, name=name or chart, namespace=namespace, upgrade=upgrade)


def documents_of(
    chart: Path, values: Mapping[str, Any], *, name: str, namespace: str, upgrade: bool = False
) -> list[JsonObject]:
    """Every object of the chart in a folder."""
    with helm_python.Chart.load(chart) as loaded:
        chosen = {"kubeVersion": NEWEST, **values}
        loaded.validate_schema(chosen)
        rendered = loaded.render(chosen, name=name, namespace=namespace, is_install=not upgrade, is_upgrade=upgrade)
    documents = []
    for path, text in rendered.items():
        if not path.endswith("NOTES.txt"):
            documents += [each for each in yaml.safe_load_all(text) if each]
    return documents


def one(documents: list[JsonObject], kind: str, name: str | None = None) -> JsonObject:
    """The only object of a kind, or of a kind and a name."""
    (found,) = [each for each in documents if each["kind"] == kind and name in (None, each["metadata"]["name"])]
    return found


def selects(selector: JsonObject, labels: dict[str, str]) -> bool:
    """Whether a selector of pods means these."""
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        labels.get(each["key"]) in each["values"] for each in selector.get("matchExpressions", ())
    )

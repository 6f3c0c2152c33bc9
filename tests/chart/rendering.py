"""Charts as Helm renders them, without a helm binary and without a cluster."""

import json
import pickle
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import helm_python

from tests.read_yaml import read_all_yaml, read_yaml

CHARTS = Path(__file__).parents[2] / "charts"
VERSION: str = read_yaml((CHARTS / "gpu-dev-server" / "Chart.yaml").read_text())["appVersion"]

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
    """Every object of a chart, rendered once for each set of values: what is random in it stays the same.

    Raises HelmValuesError and HelmRenderError as the library does.
    """
    chosen = json.dumps({"kubeVersion": kube_version, **(values or {})})
    found: list[JsonObject] = pickle.loads(_rendered(chart, chosen, name or chart, namespace, upgrade))
    return found


@lru_cache(maxsize=200)
def _rendered(chart: str, values: str, name: str, namespace: str, upgrade: bool) -> bytes:
    """As bytes: tests change what they are given."""
    return pickle.dumps(
        documents_of(CHARTS / chart, json.loads(values), name=name, namespace=namespace, upgrade=upgrade)
    )


def documents_of(
    chart: Path, values: Mapping[str, Any], *, name: str, namespace: str, upgrade: bool = False
) -> list[JsonObject]:
    """Every object of the chart in a folder."""
    with helm_python.Chart.load(chart) as loaded:
        chosen = {"kubeVersion": NEWEST, **values}
        rendered = loaded.render(chosen, name=name, namespace=namespace, is_install=not upgrade, is_upgrade=upgrade)
    documents = []
    for path, text in rendered.items():
        if not path.endswith("NOTES.txt"):
            documents += [entry for entry in read_all_yaml(text) if entry]
    return documents


def one(documents: list[JsonObject], kind: str, name: str | None = None) -> JsonObject:
    """The only object of a kind, or of a kind and a name."""
    (found,) = [
        document for document in documents if document["kind"] == kind and name in (None, document["metadata"]["name"])
    ]
    return found


def selects(selector: JsonObject, labels: dict[str, str]) -> bool:
    """Whether a selector of pods means these."""
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        labels.get(expression["key"]) in expression["values"] for expression in selector.get("matchExpressions", ())
    )

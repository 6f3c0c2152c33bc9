"""Grafana's own schemas take the dashboards, and the sidecar finds them.

The schemas (see `grafana_schema/README.md`) refuse unknown fields, which Grafana's SDK for Python drops without a word.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from tests.chart.dashboards import dashboards, panels
from tests.chart.dev_server.dev_server_values import ALL_ON, over, rendered
from tests.chart.rendering import JsonObject, one

SCHEMAS = Path(__file__).parent / "grafana_schema"
FILES = {"gpu-dev-server.json", "gpu-dev-project.json", "gpu-dev-nodes.json", "gpu-dev-queue.json"}
ROW = 24


def schema(name: str, definition: str | None = None) -> Draft7Validator:
    found: dict[str, Any] = json.loads((SCHEMAS / f"{name}.jsonschema.json").read_text())
    return Draft7Validator(found if definition is None else {**found, "$ref": f"#/definitions/{definition}"})


def faults(validator: Draft7Validator, value: object) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]


def test_there_are_four() -> None:
    assert {*dashboards()} == FILES
    assert {f"{dashboard['uid']}.json" for dashboard in dashboards().values()} == FILES
    titles = [dashboard["title"] for dashboard in dashboards().values()]
    assert len({*titles}) == len(titles)


@pytest.mark.parametrize("name", sorted(FILES))
def test_grafana_s_schemas_take_them(name: str) -> None:
    dashboard = dashboards()[name]
    assert faults(schema("dashboard"), dashboard) == []
    for panel in dashboard["panels"]:
        assert faults(schema(panel["type"], "Options"), panel["options"]) == []
        if panel["type"] == "timeseries":
            custom = panel["fieldConfig"]["defaults"]["custom"]
            assert faults(schema("timeseries", "GraphFieldConfig"), custom) == []
        for target in panel["targets"]:
            assert faults(schema("prometheus"), target) == []


@pytest.mark.parametrize(
    "change", [{"panels": [{"title": 1}]}, {"refersh": "30s"}, {"time": {"from": 6}}, {"schemaVersion": "39"}]
)
def test_the_schemas_refuse_what_is_wrong(change: JsonObject) -> None:
    assert faults(schema("dashboard"), {**dashboards()["gpu-dev-server.json"], **change})


@pytest.mark.parametrize("name", sorted(FILES))
def test_panels_have_ids_and_places_of_their_own(name: str) -> None:
    shown = dashboards()[name]["panels"]
    assert len({panel["id"] for panel in shown}) == len(shown)
    taken: set[tuple[int, int]] = set()
    for panel in shown:
        place = panel["gridPos"]
        cells = {(place["x"] + right, place["y"] + down) for right in range(place["w"]) for down in range(place["h"])}
        assert taken.isdisjoint(cells), panel["title"]
        assert place["x"] + place["w"] <= ROW
        taken |= cells


def test_panels_say_what_they_show_and_ask_the_chosen_data_source() -> None:
    for _, panel in panels():
        assert panel["description"].endswith(".")
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_idle_gpus_are_those_that_are_held_now() -> None:
    """A mean of the last half hour is also of jobs that have ended since."""
    means = [
        target["expr"]
        for _, panel in panels()
        for target in panel["targets"]
        if "avg_over_time(gpu_dev_gpu_utilization_ratio" in target["expr"]
    ]
    assert len(means) == 2
    for expression in means:
        assert " < 0.1) and on (node, gpu" in expression, expression


def test_the_sidecar_finds_them_by_a_label_where_they_are_on() -> None:
    found = one(rendered(ALL_ON), "ConfigMap", "gpu-dev-dashboard")
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    labels = over(ALL_ON, {"monitoring": {"dashboard": {"labels": {"grafana_dashboard": "yes"}}}})
    assert one(rendered(labels), "ConfigMap", "gpu-dev-dashboard")["metadata"]["labels"]["grafana_dashboard"] == "yes"
    off = rendered(over(ALL_ON, {"monitoring": {"dashboard": {"enabled": False}}}))
    assert "gpu-dev-dashboard" not in {document["metadata"]["name"] for document in off}


def test_labels_of_metrics_are_kept_where_prometheus_has_the_same() -> None:
    """`job` is a job of ours, which Prometheus would rename: it has a label of that name for what it scrapes."""
    monitor = one(rendered(ALL_ON), "ServiceMonitor")
    assert [endpoint["honorLabels"] for endpoint in monitor["spec"]["endpoints"]] == [True]

"""The dashboards for Grafana, as the chart renders them."""

import json
from collections.abc import Iterator
from functools import cache

from tests.chart.dev_server.dev_server_values import ALL_ON
from tests.chart.rendering import JsonObject, one, render


@cache
def dashboards() -> dict[str, JsonObject]:
    """The dashboards by the names of their files."""
    data = one(render("gpu-dev-server", ALL_ON), "ConfigMap", "gpu-dev-dashboard")["data"]
    return {name: json.loads(text) for name, text in data.items()}


def panels() -> Iterator[tuple[str, JsonObject]]:
    """Each panel of each dashboard, with the name of the file."""
    for name, dashboard in dashboards().items():
        for panel in dashboard["panels"]:
            yield name, panel

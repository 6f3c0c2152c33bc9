"""The chart gpu-dev-server as Helm renders it where a cluster answers: with what `lookup` finds there."""

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.chart.dev_server.dev_server_schema import CHART
from tests.chart.rendering import JsonObject, documents_of

_ASKS = "lookup (index . 0) (index . 1) (index . 2) (index . 3)"
DEFAULT: JsonObject = {"v1/Namespace//default": {"metadata": {"name": "default"}}}
"""Every cluster has it. By apiVersion, kind, namespace and name."""


def rendered_in(
    cluster: Mapping[str, JsonObject], values: Mapping[str, Any], *, upgrade: bool = False
) -> list[JsonObject]:
    """Every object of the chart; `cluster` has what is there beside DEFAULT."""
    with tempfile.TemporaryDirectory() as folder:
        chart = Path(folder) / CHART.name
        shutil.copytree(CHART, chart)
        file = chart / "templates" / "_cluster.tpl"
        text = file.read_text()
        assert text.count(_ASKS) == 1
        answers = json.dumps({**DEFAULT, **cluster})
        file.write_text(text.replace(_ASKS, f'get (fromJson `{answers}`) (join "/" .)'))
        return documents_of(chart, values, name="gpu-dev", namespace="default", upgrade=upgrade)

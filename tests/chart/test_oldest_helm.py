"""What the oldest Helm that is supported, 3.8, does otherwise than the one that renders here."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from tests.chart.rendering import CHARTS
from tests.read_yaml import read_yaml

INSTALLED = sorted(path.parent.name for path in CHARTS.glob("*/values.schema.json"))
_NEWER = {
    "break", "continue", "fromToml", "mustFromJson", "mustFromYaml", "mustToJson", "mustToToml", "mustToYaml",
    "toYamlPretty",
}  # fmt: skip


@pytest.mark.parametrize("chart", INSTALLED)
def test_the_defaults_themselves_are_what_the_schema_takes(chart: str) -> None:
    """Helm 3.8 holds them against it as they are; later ones leave out what is null."""
    schema = json.loads((CHARTS / chart / "values.schema.json").read_text())
    values = read_yaml((CHARTS / chart / "values.yaml").read_text())
    assert [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(values)] == []


def actions(path: Path) -> Iterator[str]:
    """What a template does, without what it says."""
    for action in re.findall(r"\{\{-?\s*(.*?)\s*-?\}\}", path.read_text(), re.DOTALL):
        if not action.startswith("/*"):
            yield re.sub(r'"(?:\\.|[^"\\])*"|`[^`]*`', '""', action)


def test_no_template_uses_what_came_later() -> None:
    for path in CHARTS.glob("**/templates/**/*.*"):
        for action in actions(path):
            assert _NEWER.isdisjoint(re.findall(r"(?<![.$\w])[A-Za-z]\w*", action)), f"{path}: {action}"
            assert not action.startswith("else with"), f"{path}: {action}"


def test_no_part_of_and_or_or_needs_that_another_was_looked_at_first() -> None:
    """Up to Go 1.17, which built that Helm, all parts are asked for: what compares, or reads further, stands inside."""
    for path in CHARTS.glob("**/templates/**/*.*"):
        for action in actions(path):
            for name in re.findall(r"\bkindIs\b|\bhasKey\b|\bkindOf\b", action):
                joined = re.match(r"(?:else )?if (?:and|or) .*\b" + name + r"\b.*\b(?:eq|ne|gt|lt|index)\b", action)
                assert not joined, f"{path}: {action}"

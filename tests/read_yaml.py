"""YAML as `yaml.safe_load` reads it, by the C library: the tests read charts, which are long, hundreds of times."""

from collections.abc import Iterator
from typing import Any

import yaml


def read_yaml(text: str) -> Any:
    """The only document in a text."""
    return yaml.load(text, Loader=yaml.CSafeLoader)


def read_all_yaml(text: str) -> Iterator[Any]:
    """All documents in a text."""
    return yaml.load_all(text, Loader=yaml.CSafeLoader)

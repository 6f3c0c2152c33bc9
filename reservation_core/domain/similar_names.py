"""Names that are searched for, and the name that a mistyped one probably means."""

import re
from collections.abc import Iterable
from enum import StrEnum

MOST_COMPARED = 100
"""So many known names the server compares with a mistyped one."""

_OF_ONE_TYPE = 0.75


class FoundKind(StrEnum):
    """The kinds of things that are searched, in the order in which they are shown."""

    JOB = "job"
    BOOKING = "booking"
    NODE = "node"
    USER = "user"


def similar(name: str, known: Iterable[str], least: float = 0.6) -> str | None:
    """The known name that is most like `name`, by at least `least` of 1; None when none is."""
    from difflib import get_close_matches  # noqa: PLC0415 - few names are mistyped, and commands are quick

    return next(iter(get_close_matches(name, sorted(known), 1, least)), None)


def type_meant(name: str, known: Iterable[str]) -> str:
    """The same of a GPU's type. Another letter or digit in its place makes another type: v100 is not h100 mistyped."""
    types, parts = sorted(known), re.split("[^a-z0-9]+", name.lower())
    alike = [one for one in types if len(one) != len(name) or sorted(one) == sorted(name)]
    parts.append(name.lower().translate(str.maketrans("oil", "011")))
    found = next((one for one in types if one in parts), None) or similar(name.lower(), alike, _OF_ONE_TYPE)
    return "" if found is None else f" Did you mean {found}?"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that suggests the most similar name, with a space before it; empty when none is similar."""
    found = similar(name, known)
    return "" if found is None else f" Did you mean {found}?"

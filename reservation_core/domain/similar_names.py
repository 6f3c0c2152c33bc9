"""Names that are searched for, and the name that a mistyped one probably means."""

from collections.abc import Iterable
from enum import StrEnum

MOST_COMPARED = 100
"""So many known names the server compares with a mistyped one."""


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


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that suggests the most similar name, with a space before it; empty when none is similar."""
    found = similar(name, known)
    return "" if found is None else f" Did you mean {found}?"

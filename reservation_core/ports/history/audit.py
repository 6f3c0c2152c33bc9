"""Reading the audit log."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """One line of the audit log; `subject` is a reservation's id, or names another object."""

    id: int
    at: datetime
    actor: str
    kind: str
    subject: str | None
    before: str | None
    after: str | None
    reason_code: str | None
    reason: str | None
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which lines to list; times are in [from_, to)."""

    kinds: frozenset[str] | None = None
    actor: str | None = None
    subject: str | None = None
    from_: datetime | None = None
    to: datetime | None = None


Place = tuple[datetime, int]
"""A position in the audit log, by time and id."""


class EventOrder(StrEnum):
    """Which line comes first."""

    NEWEST_FIRST = "newest"
    OLDEST_FIRST = "oldest"


@dataclass(frozen=True, slots=True)
class EventPage:
    """Some lines in order, and the position behind which the search continues; None: all lines were searched."""

    events: tuple[RecordedEvent, ...]
    goes_on_behind: Place | None

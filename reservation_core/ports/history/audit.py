"""Reading the record, whatever it is about."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """One line of the record, about whatever it is: `subject` is a reservation's id, or names what else it is about."""

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
    """Which lines: of these kinds, by this actor, about this subject, at times in [from_, to)."""

    kinds: frozenset[str] | None = None
    actor: str | None = None
    subject: str | None = None
    from_: datetime | None = None
    to: datetime | None = None


Place = tuple[datetime, int]
"""Where in the record, by time and id."""


@dataclass(frozen=True, slots=True)
class EventPage:
    """Some lines, newest first, and from which place the search goes on; None: all of the record was looked at."""

    events: tuple[RecordedEvent, ...]
    goes_on_before: Place | None

"""What metrics are made of."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from reservation_core.domain.model import JobStatus, ReservationKind


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job that has ended, with the event that says so."""

    event_id: int
    status: JobStatus
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime


@dataclass(frozen=True, slots=True)
class CalendarCount:
    """How often something happened to one kind of reservation: `of` is job, booking or maintenance."""

    kind: str
    of: ReservationKind
    count: int


class Measurements(Protocol):
    """What metrics are made of; every call is cheap however many jobs there were."""

    async def job_counts(self) -> list[tuple[JobStatus, int]]:
        """Jobs that have not ended, by status; all four statuses, zeros too."""
        ...

    async def newest_event(self, settled_before: datetime) -> int:
        """The newest event older than that; 0 when there is none."""
        ...

    async def ended(self, after_event: int, up_to_event: int, limit: int) -> list[EndedJob]:
        """Jobs whose final event is in (after_event, up_to_event], in event order."""
        ...

    async def calendar_events(self, after_event: int, up_to_event: int) -> list[CalendarCount]:
        """What happened to bookings, windows and promises in (after_event, up_to_event]."""
        ...

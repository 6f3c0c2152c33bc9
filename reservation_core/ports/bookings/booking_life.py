"""What happens to bookings as time passes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from reservation_core.domain.bookings.changes import DecidedBookingChange
from reservation_core.domain.bookings.life import BookingFacts, BookingRules
from reservation_core.domain.bookings.waitlist import WaitingRequest
from reservation_core.domain.model import BookingStatus


@dataclass(frozen=True, slots=True)
class LeftOver:
    """A job that waits or runs within a booking that is over, and how that stands."""

    job_id: str
    booking_id: str
    booking_status: BookingStatus
    booking_end: datetime


@dataclass(frozen=True, slots=True)
class WaitlistMark:
    """What changes whenever the waitlist does: how many wait, who came last, and how often they were changed."""

    waiting: int
    last: int
    versions: int


class BookingLife(Protocol):
    """Bookings, changed by what is due."""

    async def hold_planning(self) -> None:
        """Let no plan be written until the transaction ends. To be asked for before any row is locked."""
        ...

    async def due(self, rules: BookingRules, now: datetime, limit: int) -> list[str]:
        """Bookings of which the clock may ask something."""
        ...

    async def facts(self, ids: Sequence[str]) -> dict[str, BookingFacts]:
        """What is true around these bookings, but for their grace."""
        ...

    async def apply(self, changes: Sequence[DecidedBookingChange]) -> None:
        """Write changes, those of one booking in their order: rows, ledger, record and messages.

        Workloads are not started here (see `link_job`). Raises CalendarConflictError when cards are not
        free.
        """
        ...

    async def link_job(self, booking_id: str, job_id: str) -> None:
        """Note that a booking's workload has become this job."""
        ...

    async def left_over(self, now: datetime, limit: int) -> list[LeftOver]:
        """Jobs that wait, start or run within bookings that are over by their status or by the clock."""
        ...

    async def waitlist_mark(self) -> WaitlistMark:
        """Equal to an earlier one only if the waitlist is as it was then."""
        ...

    async def waiting(self, limit: int) -> list[WaitingRequest]:
        """The waitlist, first come first."""
        ...

    async def counts(self) -> list[tuple[BookingStatus, int]]:
        """How many bookings are open, by status; zeros too."""
        ...

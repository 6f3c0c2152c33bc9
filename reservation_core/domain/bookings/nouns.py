"""The nouns of bookings: the request, the booking, and why a request is refused.

Times are timezone-aware UTC datetimes of whole minutes, ranges are half-open.
"""

from dataclasses import dataclass
from datetime import datetime

from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.model import AllocatedGpu, PodWorkload
from reservation_core.domain.request_terms import Share
from reservation_core.domain.statuses import BookingReason, BookingStatus

FINAL_BOOKINGS = frozenset(
    {BookingStatus.ENDED, BookingStatus.RELEASED, BookingStatus.CANCELLED, BookingStatus.EXPIRED}
)
OPEN_BOOKINGS = frozenset(BookingStatus) - FINAL_BOOKINGS


@dataclass(frozen=True, slots=True)
class Why:
    """A stable code, and a sentence for people that says what happened and what to do."""

    code: BookingReason
    detail: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """A booking's request: `gpus` GPUs on each of `nodes` distinct nodes, all of one type.

    `gpu_type` None means any single type; `node` pins it to that node.
    """

    gpus: int
    nodes: int = 1
    gpu_type: str | None = None
    node: str | None = None


@dataclass(frozen=True, slots=True)
class ChosenGpu:
    """One GPU of a booking; `rank` 0.. numbers its nodes."""

    gpu_id: int
    rank: int


@dataclass(frozen=True, slots=True)
class Booking:
    """A booking: its database row.

    `workload` is submitted as `started_job` at the start. `waits_until`: when it leaves the waitlist; `offer_until`:
    when offered GPUs are given back unless accepted. `activated_at`: when its slot was seen to have begun; it is
    released at `release_at` unless `used_at` is set. Warnings due until `start_warned_at` and `end_warned_at` have
    been given. `share`: how much of each node its GPUs are, at least; None where nodes do not report what they have.
    """

    id: str
    seq: int
    user_id: int
    user: str
    title: str | None
    project: str | None
    status: BookingStatus
    why: Why
    wanted: Wanted
    span: Span
    workload: PodWorkload | None
    created_at: datetime
    version: int
    series_id: str | None = None
    occurrence: int | None = None
    auto_accept: bool = False
    waits_until: datetime | None = None
    offer_until: datetime | None = None
    used_at: datetime | None = None
    release_at: datetime | None = None
    cards: tuple[AllocatedGpu, ...] = ()
    jobs: tuple[str, ...] = ()
    activated_at: datetime | None = None
    started_job: str | None = None
    finished_at: datetime | None = None
    start_warned_at: datetime | None = None
    end_warned_at: datetime | None = None
    no_show_warned_at: datetime | None = None
    share: Share | None = None

    @property
    def waits_at_most_until(self) -> datetime:
        """When it leaves the waitlist: at its start at the latest."""
        return self.span.start if self.waits_until is None else min(self.waits_until, self.span.start)

    @property
    def offered_at_most_until(self) -> datetime:
        """When its offer runs out: at its start at the latest."""
        return self.span.start if self.offer_until is None else min(self.offer_until, self.span.start)


@dataclass(frozen=True, slots=True)
class FreeSlot:
    """A free slot on GPUs of one type: any start from `span.start` to `latest_start` is possible."""

    gpu_type: str
    span: Span
    latest_start: datetime

"""The nouns of booking: what is asked for, what is booked, and why a request can't be had.

Times are timezone-aware UTC datetimes of whole minutes, ranges are half-open.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from reservation_core.domain.model import AllocatedGpu, BookingStatus, PodWorkload
from reservation_core.domain.policy.rules import RuleBreach

LONGEST_BOOKING = timedelta(days=90)
FARTHEST_START = timedelta(days=400)
"""How far ahead a booking may begin whatever the policy says."""

FINAL_BOOKINGS = frozenset(
    {BookingStatus.ENDED, BookingStatus.RELEASED, BookingStatus.CANCELLED, BookingStatus.EXPIRED}
)
OPEN_BOOKINGS = frozenset(BookingStatus) - FINAL_BOOKINGS
HOLDING_BOOKINGS = frozenset({BookingStatus.OFFERED, BookingStatus.CONFIRMED, BookingStatus.ACTIVE})
"""The statuses in which a booking has cards in the calendar."""


class BookingReason(StrEnum):
    """Why a booking is in its state. Stable: clients and tests match on it."""

    WAITING_FOR_SLOT = "waiting_for_slot"
    OFFERED = "offered"
    BOOKED = "booked"
    MOVED = "moved"
    IN_SLOT = "in_slot"
    WORKLOAD_REFUSED = "workload_refused"
    SLOT_OVER = "slot_over"
    NOT_USED = "not_used"
    WAITED_IN_VAIN = "waited_in_vain"
    OFFER_RAN_OUT = "offer_ran_out"
    DECLINED = "declined"
    CANCELLED_BY_USER = "cancelled_by_user"
    CANCELLED_BY_ADMIN = "cancelled_by_admin"
    MAINTENANCE = "maintenance"


@dataclass(frozen=True, slots=True)
class Why:
    """A stable code, and a sentence for a person that says what it means here and what to do."""

    code: BookingReason
    detail: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a booking asks for: `gpus` cards on each of `nodes` distinct nodes, all of one type.

    `gpu_type` None means any one type; `node` pins it to that node.
    """

    gpus: int
    nodes: int = 1
    gpu_type: str | None = None
    node: str | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """[start, end)."""

    start: datetime
    end: datetime

    @property
    def length(self) -> timedelta:
        """How long it is."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class ChosenCard:
    """One card of a booking; `rank` 0.. numbers its nodes."""

    gpu_id: int
    rank: int


@dataclass(frozen=True, slots=True)
class Booking:
    """A booking, whole. `gpu_type` is what it has once it has cards, before that what was asked for.

    `node` is the node it is pinned to. `workload` is submitted as a job at its start. `waits_until`: when its place on
    the waitlist is over; `offer_until`: when the cards that are held for it go back unless it is accepted.
    `activated_at`: when its slot was found to have begun; it is given up at `release_at` unless `used_at` is set.
    `started_job` was made of its workload. Warnings due until `start_warned_at` and `end_warned_at` have been given.
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

    @property
    def waits_at_most_until(self) -> datetime:
        """When waiting is over: what would have begun is not served any more."""
        return self.span.start if self.waits_until is None else min(self.waits_until, self.span.start)

    @property
    def offered_at_most_until(self) -> datetime:
        """When its offer runs out: never after the start."""
        return self.span.start if self.offer_until is None else min(self.offer_until, self.span.start)


@dataclass(frozen=True, slots=True)
class FreeSlot:
    """A time that would do on cards of one type: any start from `span.start` to `latest_start` does."""

    gpu_type: str
    span: Span
    latest_start: datetime


@dataclass(frozen=True, slots=True)
class Skipped:
    """A date of a series that can't be had. `span` is None where its local time does not exist."""

    span: Span | None
    local_start: str
    broken: tuple[RuleBreach, ...]
    nearest: tuple[Span, ...] = field(default=())

"""Bookings and the calendar that they are made in."""

from dataclasses import dataclass, field
from datetime import datetime

from reservation_core.domain.bookings.nouns import Booking, ChosenCard, Span
from reservation_core.domain.model import BookingStatus, ReservationKind


@dataclass(frozen=True, slots=True)
class NewSeries:
    """A series as accepted."""

    id: str
    user_id: int
    rule: str
    time_zone: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class NewBooking:
    """A booking as accepted: its own `cards` are empty, `chosen` are those to be written (none on the waitlist)."""

    booking: Booking
    chosen: tuple[ChosenCard, ...]


@dataclass(frozen=True, slots=True)
class ChangedBooking:
    """A booking after a change: its row as it should be, and the cards it has from now on.

    `before` is what was read and locked. With `keeps_cards` the ranges of its cards move, else they are replaced.
    """

    before: Booking
    after: Booking
    chosen: tuple[ChosenCard, ...]
    keeps_cards: bool


@dataclass(frozen=True, slots=True)
class BookingFilter:
    """Which bookings a list shows: all of `user_id`'s own, and of others only those that take or took cards.

    `user_id` None sees everything. They end after `from_`, and begin before `to`.
    """

    user_id: int | None
    from_: datetime
    only_own: bool = False
    user: str | None = None
    statuses: frozenset[BookingStatus] | None = None
    to: datetime | None = None


@dataclass(frozen=True, slots=True)
class CalendarEntry:
    """What has cards in the calendar: a booking (also one that is over), a job or maintenance (only open ones).

    `planned`: a waiting job was promised these cards. `title` is a job's name, too. `gpu_ids` are those of its cards
    that were asked about; `gpus` on each of `nodes` are all that it has.
    """

    id: str
    kind: ReservationKind
    status: str
    planned: bool
    user_id: int
    user: str
    title: str | None
    gpus: int
    nodes: int
    span: Span
    series_id: str | None
    gpu_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FeedOwner:
    """The owner of a calendar feed, and the token that it was made with (None: from before that was stored)."""

    user_id: int
    user: str
    made_with: str | None
    digest: bytes = field(repr=False)

"""Bookings and the calendar that they are made in."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from reservation_core.domain.bookings.card_choice import KnownCard
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


class Bookings(Protocol):
    """Bookings, their cards and the calendar."""

    async def lock_calendar(self) -> None:
        """Wait for others who had to lock it, too: whoever lost too many races books alone."""
        ...

    async def judge_now(self) -> None:
        """Have the database judge now what it would judge at the commit: whether what is within a booking stays so."""
        ...

    async def cards(self, start: datetime, end: datetime, *, without: Collection[str] = ()) -> list[KnownCard]:
        """Every card of nodes that exist, with its open ranges that touch [start, end).

        `without`: reservations whose own ranges don't count.
        """
        ...

    async def add(self, new: Sequence[NewBooking], series: NewSeries | None) -> bool:
        """Store bookings with cards, record and message, all or none.

        False: somebody else took a card meanwhile. The transaction stays usable.
        """
        ...

    async def change(self, changed: ChangedBooking, actor: str, kind: str, now: datetime) -> bool:
        """Write a change, with its record (an event of this kind) and message. False as with `add`."""
        ...

    async def cancel(self, before: Sequence[Booking], after: Sequence[Booking], actor: str, now: datetime) -> None:
        """Write bookings that were locked as cancelled: what is left of their time goes back at `now`."""
        ...

    async def lock(self, ids: Sequence[str]) -> dict[str, Booking]:
        """Read rows with their cards and jobs and keep others from changing them; unknown ids are left out."""
        ...

    async def view(self, booking_id: str) -> Booking | None:
        """One booking with its cards and jobs."""
        ...

    async def project_of(self, booking_id: str, user_id: int) -> str | None:
        """The project that a user's booking is for; None for a booking without one, or that is not theirs."""
        ...

    async def views(self, which: BookingFilter, *, limit: int, after: tuple[datetime, str] | None) -> list[Booking]:
        """By start and id, those after (start, id)."""
        ...

    async def entries(
        self, start: datetime, end: datetime, gpu_ids: Collection[int], *, only_of: int | None = None
    ) -> list[CalendarEntry]:
        """What has one of these cards at some time in [start, end), by start and id; `only_of`: only this user's.

        What runs within a booking lies in the booking's time and is left out.
        """
        ...

    async def latest(
        self, user_id: int, from_: datetime, statuses: frozenset[BookingStatus], limit: int
    ) -> list[Booking]:
        """A user's own that end after `from_`, by start and id; of too many the latest."""
        ...

    async def of_series(self, series_id: str, from_occurrence: int) -> list[str]:
        """The ids of a series' bookings that are not over, from an occurrence on."""
        ...

    async def jobs_within(self, booking_ids: Sequence[str]) -> list[str]:
        """The ids of jobs of these bookings that have not ended."""
        ...

    async def taken_within(self, booking_id: str) -> list[tuple[str, datetime]]:
        """Jobs of a booking that hold cards, and until when by the calendar."""
        ...


@dataclass(frozen=True, slots=True)
class FeedOwner:
    """The owner of a calendar feed, and the token that it was made with (None: from before that was stored)."""

    user_id: int
    user: str
    made_with: str | None
    digest: bytes = field(repr=False)


class CalendarFeeds(Protocol):
    """The private addresses of people's calendars."""

    async def put(self, user_id: int, digest: bytes, now: datetime, made_with: str) -> None:
        """Make or replace a user's feed. It ends with the token `made_with`."""
        ...

    async def remove(self, user_id: int) -> bool:
        """False when there was none."""
        ...

    async def owner(self, digest: bytes, now: datetime) -> FeedOwner | None:
        """The owner of this feed; None for nobody's, disabled users', and where the token that made it has ended."""
        ...

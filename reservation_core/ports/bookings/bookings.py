"""Bookings and the calendar."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.nouns import Booking, ChosenGpu
from reservation_core.domain.statuses import BookingStatus, ReservationKind


@dataclass(frozen=True, slots=True)
class NewSeries:
    """A new series."""

    id: str
    user_id: int
    rule: str
    time_zone: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class NewBooking:
    """A new booking: its own `cards` are empty, `chosen` are to be stored (none on the waitlist)."""

    booking: Booking
    chosen: tuple[ChosenGpu, ...]


@dataclass(frozen=True, slots=True)
class ChangedBooking:
    """A changed booking: its new row, and its new GPUs.

    `before` was read and locked. With `keeps_cards` the ranges of its GPUs move, else they are replaced.
    """

    before: Booking
    after: Booking
    chosen: tuple[ChosenGpu, ...]
    keeps_cards: bool


@dataclass(frozen=True, slots=True)
class BookingFilter:
    """Which bookings to list: all of `user_id`'s own, and of others only those with GPUs, now or before.

    `user_id` None: all bookings. They end after `from_`, and begin before `to`.
    """

    user_id: int | None
    from_: datetime
    only_own: bool = False
    user: str | None = None
    statuses: frozenset[BookingStatus] | None = None
    to: datetime | None = None


@dataclass(frozen=True, slots=True)
class CalendarEntry:
    """A reservation with GPUs in the calendar: a booking (also a finished one), or an unfinished job or maintenance.

    `planned`: the slot of a waiting job. `title` is a job's name, too. `gpu_ids` are its GPUs among those asked about;
    `gpus` on each of `nodes` are all of them. `job_end` is when a running job's time is over: its GPUs are kept until
    the end of `span`, some seconds later, for its pod to end.
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
    job_end: datetime | None = None

    @property
    def ends_at(self) -> datetime:
        """Its end for people."""
        return self.span.end if self.job_end is None else min(self.span.end, self.job_end)


@dataclass(frozen=True, slots=True)
class EntryMerging:
    """How the entries of a calendar are merged where there are more than `above`: by row and step.

    `places`: the row's number of each GPU that is asked about, in their order. `steps` are the starts of steps of
    `step_length`; in a day on which clocks change one may be shorter or longer. `named`: how many of each merged entry
    are read whole.
    """

    above: int
    places: Sequence[int]
    steps: Sequence[datetime]
    step_length: timedelta
    viewer: int
    named: int


@dataclass(frozen=True, slots=True)
class MergedEntries:
    """All entries of a kind on the row `place` that begin in one step, those of the viewer (`mine`) apart from others.

    `long`: they last longer than a step; others are merged apart. `first` are the first of them, by start.
    """

    place: int
    mine: bool
    long: bool
    kind: ReservationKind
    count: int
    span: Span
    first: tuple[CalendarEntry, ...]


@dataclass(frozen=True, slots=True)
class CalendarEntries:
    """What a calendar shows: each entry, or merged ones where there are too many. One of the two is empty."""

    single: Sequence[CalendarEntry]
    merged: Sequence[MergedEntries] = ()

    @property
    def count(self) -> int:
        """How many entries there are; one that is on several rows counts on each, if they are merged."""
        return len(self.single) + sum(merged.count for merged in self.merged)


@dataclass(frozen=True, slots=True)
class FeedOwner:
    """The owner of a calendar feed, and the token that created it (None: unknown, of an old feed)."""

    user_id: int
    user: str
    made_with: str | None
    digest: bytes = field(repr=False)

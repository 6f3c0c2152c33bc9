"""What happens to a booking, and what has to be done about it: events, effects and changes, as data.

`life.transition` turns an event into effects; use cases carry these out.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from reservation_core.domain.bookings.nouns import Booking, ChosenCard
from reservation_core.domain.changes import Record, WakePlanner


@dataclass(frozen=True, slots=True)
class StartReached:
    """The clock has reached its start.

    `grace` is how long it may stay unused (None: for ever), `late` whose pods still hold cards of it.
    """

    grace: timedelta | None
    late: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SlotOver:
    """The clock has reached its end."""


@dataclass(frozen=True, slots=True)
class UsedBy:
    """A job of its owner, or a pod of others, has run in it since `at`."""

    by: str
    at: datetime


@dataclass(frozen=True, slots=True)
class WorkloadRefused:
    """The workload that came with it was not taken, or the job `job_id` that it became failed before it ever ran."""

    detail: str
    job_id: str | None = None


@dataclass(frozen=True, slots=True)
class StartingSoon:
    """A warning before its start is due."""


@dataclass(frozen=True, slots=True)
class EndingSoon:
    """A warning before its end is due."""


@dataclass(frozen=True, slots=True)
class NoShowLooms:
    """Half of its grace is over, and nothing has run in it."""


@dataclass(frozen=True, slots=True)
class GraceOver:
    """Its grace is over, and nothing has run in it."""


@dataclass(frozen=True, slots=True)
class Offered:
    """These cards, of this type, came free for it; its owner may have them until `until`."""

    cards: tuple[ChosenCard, ...]
    gpu_type: str
    until: datetime


@dataclass(frozen=True, slots=True)
class Booked:
    """These cards, of this type, came free for it, and its owner wants them without being asked."""

    cards: tuple[ChosenCard, ...]
    gpu_type: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """Its owner takes the offer."""

    actor: str


@dataclass(frozen=True, slots=True)
class Declined:
    """Its owner does not want what is offered."""

    actor: str


@dataclass(frozen=True, slots=True)
class OfferRanOut:
    """Nobody has answered the offer in time."""


@dataclass(frozen=True, slots=True)
class WaitRanOut:
    """Nothing came free for it in time."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Its owner or an administrator wants it no more; `why`, where there is more to say than that."""

    actor: str
    by_admin: bool = False
    why: str | None = None


@dataclass(frozen=True, slots=True)
class MovedAway:
    """An administrator needs cards of it; these are as good, at the same time. `where` they are, as people say it."""

    cards: tuple[ChosenCard, ...]
    where: str
    actor: str
    why: str


@dataclass(frozen=True, slots=True)
class CutShort:
    """An administrator needs cards of it in [at, until), and there are no others for that time.

    `goes_on` says where and when what is left of it goes on, as another booking.
    """

    at: datetime
    until: datetime
    actor: str
    why: str
    goes_on: str | None = None


@dataclass(frozen=True, slots=True)
class BeginsLater:
    """An administrator needs cards of it until `at`, there are no others for all of its time, and it has not begun."""

    at: datetime
    cards: tuple[ChosenCard, ...]
    actor: str
    why: str


BookingEvent = (
    StartReached
    | SlotOver
    | UsedBy
    | WorkloadRefused
    | StartingSoon
    | EndingSoon
    | NoShowLooms
    | GraceOver
    | Offered
    | Booked
    | Accepted
    | Declined
    | OfferRanOut
    | WaitRanOut
    | Cancelled
    | MovedAway
    | CutShort
    | BeginsLater
)


@dataclass(frozen=True, slots=True)
class HoldCards:
    """Write these cards into the ledger for what is left of its slot."""

    cards: tuple[ChosenCard, ...]


@dataclass(frozen=True, slots=True)
class GiveBack:
    """What its rows of the ledger have after `at` goes back to the calendar. `closing`: the rows are over with it."""

    at: datetime
    closing: bool = True


@dataclass(frozen=True, slots=True)
class StartWorkload:
    """Submit the workload that came with it, as a job within it."""


BookingEffect = HoldCards | GiveBack | StartWorkload | WakePlanner | Record


@dataclass(frozen=True, slots=True)
class DecidedBookingChange:
    """A transition that was decided and is to be written: the row before and after, and what else must happen."""

    before: Booking
    after: Booking
    effects: tuple[BookingEffect, ...]
    at: datetime

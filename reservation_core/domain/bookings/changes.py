"""Events, effects and changes of a booking, as data.

`life.transition` turns an event into effects; use cases carry them out.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from reservation_core.domain.bookings.nouns import Booking, ChosenGpu
from reservation_core.domain.changes import Record, WakePlanner


@dataclass(frozen=True, slots=True)
class StartReached:
    """The clock has reached the start of the booking.

    `grace` is how long it may stay unused (None: for ever); `late`: reservations whose pods still hold its GPUs.
    """

    grace: timedelta | None
    late: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SlotOver:
    """The clock has reached the end of the booking."""


@dataclass(frozen=True, slots=True)
class UsedBy:
    """A job of the owner, or a pod of another system, has used the booking since `at`."""

    by: str
    at: datetime


@dataclass(frozen=True, slots=True)
class WorkloadRefused:
    """The booking's workload was refused, or the job `job_id` made from it failed before it ran."""

    detail: str
    job_id: str | None = None


@dataclass(frozen=True, slots=True)
class StartingSoon:
    """A warning before the start is due."""


@dataclass(frozen=True, slots=True)
class EndingSoon:
    """A warning before the end is due."""


@dataclass(frozen=True, slots=True)
class NoShowLooms:
    """Half of the grace is over, and nothing has used the booking."""


@dataclass(frozen=True, slots=True)
class GraceOver:
    """The grace is over, and nothing has used the booking."""


@dataclass(frozen=True, slots=True)
class Offered:
    """GPUs of this type became free for the booking; the owner may accept them until `until`."""

    cards: tuple[ChosenGpu, ...]
    gpu_type: str
    until: datetime


@dataclass(frozen=True, slots=True)
class Booked:
    """GPUs of this type became free for the booking, which has `auto_accept`."""

    cards: tuple[ChosenGpu, ...]
    gpu_type: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """The owner accepts the offer."""

    actor: str


@dataclass(frozen=True, slots=True)
class Declined:
    """The owner declines the offer."""

    actor: str


@dataclass(frozen=True, slots=True)
class OfferRanOut:
    """The offer was not answered in time."""


@dataclass(frozen=True, slots=True)
class WaitRanOut:
    """Nothing became free for the booking in time."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The owner or an administrator cancels the booking, with an optional reason `why`."""

    actor: str
    by_admin: bool = False
    why: str | None = None


@dataclass(frozen=True, slots=True)
class MovedAway:
    """An administrator needs the booking's GPUs; `cards` are as good, at the same time. `where` names them."""

    cards: tuple[ChosenGpu, ...]
    where: str
    actor: str
    why: str


@dataclass(frozen=True, slots=True)
class CutShort:
    """An administrator needs GPUs of the booking in [at, until), and no others are free then.

    `goes_on` says where and when the rest continues, as another booking.
    """

    at: datetime
    until: datetime
    actor: str
    why: str
    goes_on: str | None = None


@dataclass(frozen=True, slots=True)
class BeginsLater:
    """An administrator needs GPUs of the booking until `at`, no others are free, and it has not begun."""

    at: datetime
    cards: tuple[ChosenGpu, ...]
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
class HoldGpus:
    """Write these GPUs into the ledger for the rest of the slot."""

    cards: tuple[ChosenGpu, ...]


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Return the booking's ledger ranges after `at` to the calendar. `closing`: close the rows."""

    at: datetime
    closing: bool = True


@dataclass(frozen=True, slots=True)
class StartWorkload:
    """Submit the booking's workload as a job in it."""


BookingEffect = HoldGpus | GiveBack | StartWorkload | WakePlanner | Record


@dataclass(frozen=True, slots=True)
class DecidedBookingChange:
    """A decided transition to be written: the row before and after, and the effects."""

    before: Booking
    after: Booking
    effects: tuple[BookingEffect, ...]
    at: datetime

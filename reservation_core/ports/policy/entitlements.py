"""Which bookings let their owners use GPUs at a time, and what is nobody's then."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Entitlement:
    """A booking in its slot: so many cards of a type until then, of which so many are `used` by its jobs and pods."""

    booking_id: str
    gpu_type: str
    gpus: int
    until: datetime
    used: int


@dataclass(frozen=True, slots=True)
class NodeOfBooking:
    """A node with so many cards of a booking, of which so many are `unused` by what is known to run there."""

    name: str
    gpus: int
    unused: int


@dataclass(frozen=True, slots=True)
class FreeOfType:
    """Of a type there are so many cards, of which the calendar leaves so many free now.

    As many as were asked for stay free `until` (None: as far as anything is known); nothing is said where there are not
    so many.
    """

    gpu_type: str
    cards: int
    free: int
    until: datetime | None


@dataclass(frozen=True, slots=True)
class PromisedCard:
    """A card of a node that the ledger has for a reservation. Times in UTC; `held`: its pod may still be there."""

    node: str
    index: int
    reservation_id: str
    starts_at: datetime
    ends_at: datetime
    held: bool

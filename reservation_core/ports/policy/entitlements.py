"""Which bookings entitle their owners to GPUs at a time, and which GPUs are free then."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Entitlement:
    """An active booking: `gpus` GPUs of a type until `until`, of which `used` are used by its jobs and pods."""

    booking_id: str
    gpu_type: str
    gpus: int
    until: datetime
    used: int


@dataclass(frozen=True, slots=True)
class NodeOfBooking:
    """A node with GPUs of a booking, of which `unused` are used by no known job or pod."""

    name: str
    gpus: int
    unused: int


@dataclass(frozen=True, slots=True)
class FreeOfType:
    """The GPUs of a type, and how many of them the calendar leaves free now.

    The requested number stays free `until` (None: no known end); meaningless if fewer are free.
    """

    gpu_type: str
    cards: int
    free: int
    until: datetime | None


@dataclass(frozen=True, slots=True)
class PromisedGpu:
    """A GPU of a node that the ledger gives a reservation. Times in UTC; `held`: its pod may still exist."""

    node: str
    index: int
    reservation_id: str
    starts_at: datetime
    ends_at: datetime
    held: bool

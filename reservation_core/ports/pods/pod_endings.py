"""What the enforcement remembers of users' pods, and the ledger's view of their bookings."""

from dataclasses import dataclass
from typing import Any

from reservation_core.domain.event_kinds import PodEventKind
from reservation_core.domain.pods.overbooked_pods import Occupant


@dataclass(frozen=True, slots=True)
class NeededGpus:
    """A node with `cards` GPUs, of which `needed` (index to reservation) are needed now or soon."""

    node: str
    cards: int
    needed: dict[int, str]
    types: frozenset[str]


@dataclass(frozen=True, slots=True)
class BookingUse:
    """The number of a booking's GPUs now, and the jobs on them."""

    booking_id: str
    cards: int
    jobs: tuple[Occupant, ...] = ()


@dataclass(frozen=True, slots=True)
class EndingRecord:
    """A line for the audit log: about a booking, or about pods alone if `booking_id` is None."""

    kind: PodEventKind
    reason: str
    subject: str
    booking_id: str | None
    data: dict[str, Any]

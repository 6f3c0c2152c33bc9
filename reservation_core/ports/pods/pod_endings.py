"""Memories of pods that people made, and what the ledger says of their bookings."""

from dataclasses import dataclass
from typing import Any

from reservation_core.domain.event_kinds import PodEventKind
from reservation_core.domain.pods.overbooked_pods import Occupant


@dataclass(frozen=True, slots=True)
class NeededCards:
    """A node with so many cards, of which `needed` (index to who needs it) are somebody's now or soon."""

    node: str
    cards: int
    needed: dict[int, str]
    types: frozenset[str]


@dataclass(frozen=True, slots=True)
class BookingUse:
    """So many `cards` a booking has now, and the jobs that are on some of them."""

    booking_id: str
    cards: int
    jobs: tuple[Occupant, ...] = ()


@dataclass(frozen=True, slots=True)
class EndingRecord:
    """A line of the record: about a booking, or about the pods alone where `booking_id` is None."""

    kind: PodEventKind
    reason: str
    subject: str
    booking_id: str | None
    data: dict[str, Any]

"""What is remembered of pods that people made, and what the ledger says of their bookings."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from reservation_core.domain.pods.overbooked_pods import Occupant
from reservation_core.domain.pods.pod_endings import BookedTime, Memory


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

    kind: str
    reason: str
    subject: str
    booking_id: str | None
    data: dict[str, Any]


class PodEndings(Protocol):
    """What those who end pods know. All of it is read and written by one after the other."""

    async def take_turn(self) -> None:
        """Keep all others who end pods waiting until the transaction ends."""
        ...

    async def memories(self) -> list[Memory]:
        """All that is remembered."""
        ...

    async def booked(self, booking_ids: Collection[str]) -> list[BookedTime]:
        """How these bookings stand; nothing of those that there are not."""
        ...

    async def booked_cards(self, booking_ids: Collection[str]) -> list[BookingUse]:
        """What these bookings have now; nothing of those whose slot it is not."""
        ...

    async def needed_cards(self, nodes: Collection[str], lead: timedelta) -> list[NeededCards]:
        """Of these nodes those with cards that bookings or jobs have now, or bookings within `lead`."""
        ...

    async def remember(self, memories: Sequence[Memory]) -> None:
        """Write what is remembered of these pods anew."""
        ...

    async def forget(self, uids: Collection[str]) -> None:
        """These pods are gone."""
        ...

    async def record(self, records: Sequence[EndingRecord], now: datetime) -> None:
        """Write lines of the record, in order."""
        ...

"""Which bookings let their owners use GPUs at a time, and what is nobody's then."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


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


class Entitlements(Protocol):
    """What people may use now."""

    async def of_user(self, user_id: int, but_for: str | None) -> Sequence[Entitlement]:
        """The user's bookings whose slot it is now by the database's clock, by type; those that end last first.

        What the pod of the uid `but_for` uses is not counted.
        """
        ...

    async def nodes_of(self, booking_id: str, gpu_type: str, but_for: str | None) -> Sequence[NodeOfBooking]:
        """The nodes of a booking whose slot it is, with its cards of a type; by name. `but_for` as in `of_user`."""
        ...

    async def free_of_types(self, gpu_type: str | None, gpus: int) -> Sequence[FreeOfType]:
        """Each type (None: all) of which there are cards that get new work, and until when `gpus` of it stay free."""
        ...

    async def promised_cards(self) -> Sequence[PromisedCard]:
        """Every card that a running job has, that is booked, or that is in maintenance, for what has not ended yet.

        What waiting jobs were promised is not among them: that goes elsewhere when a card is taken.
        """
        ...

"""Which bookings let their owners use GPUs at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Entitlement:
    """A booking in its slot: so many cards of a type until then."""

    booking_id: str
    gpu_type: str
    gpus: int
    until: datetime


class Entitlements(Protocol):
    """What people may use now."""

    async def of_user(self, user_id: int) -> Sequence[Entitlement]:
        """The user's bookings whose slot it is now by the database's clock, by type; those that end last first."""
        ...

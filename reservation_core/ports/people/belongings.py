"""What somebody has that is not over."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from reservation_core.domain.model import ReservationKind


@dataclass(frozen=True, slots=True)
class Belonging:
    """A job or booking that is not over. `starts_at` is a booking's slot's, or when a job began to run."""

    id: str
    kind: ReservationKind
    status: str
    name: str | None
    starts_at: datetime | None
    ends_at: datetime | None


class Belongings(Protocol):
    """What users have that is not over."""

    async def waiting(self, user_id: int, limit: int) -> list[Belonging]:
        """Jobs that wait for GPUs, or are to wait again, and requests for bookings that wait or are offered some."""
        ...

    async def open(self, user_id: int, limit: int) -> list[Belonging]:
        """All jobs and bookings that are not over, but for jobs that are ending already."""
        ...

    async def left(self, user_id: int, limit: int) -> tuple[Sequence[Belonging], int]:
        """All that is not over, the oldest first, and how many they are in all."""
        ...

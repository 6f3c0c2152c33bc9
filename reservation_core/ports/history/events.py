"""The append-only record."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from reservation_core.domain.model import Reason


@dataclass(frozen=True, slots=True)
class EventRecord:
    """One line of the append-only record."""

    id: int
    reservation_id: str | None
    at: datetime
    actor: str
    kind: str
    before: str | None
    after: str | None
    reason: Reason | None
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Recorded:
    """That something was recorded, and about what: the id of a job, a booking, a token ..."""

    id: int
    kind: str
    subject: str | None


class Events(Protocol):
    """The append-only record: who, what, before, after, why."""

    async def of_reservation(self, reservation_id: str, after_id: int, limit: int) -> list[EventRecord]:
        """In order, those after `after_id`."""
        ...

    async def append(
        self,
        *,
        actor: str,
        kind: str,
        at: datetime,
        subject: str | None = None,
        data: dict[str, Any] | None = None,
    ) -> None:
        """Record something that is not about a reservation (a token, a user, a node)."""
        ...

    async def newest(self) -> int:
        """The newest event's id; 0 without any."""
        ...

    async def after(self, event_id: int, limit: int, late: Collection[int] = ()) -> list[Recorded]:
        """What was recorded after an event, in order, before it those of `late` that there are now.

        An id may come to be seen after greater ones.
        """
        ...

    async def standing(self) -> tuple[object, ...]:
        """What differs whenever something has been recorded, or estimates have changed; to be compared only."""
        ...

    async def estimates_as_of(self) -> tuple[int, datetime | None]:
        """How many who wait have estimates, and when these last changed."""
        ...

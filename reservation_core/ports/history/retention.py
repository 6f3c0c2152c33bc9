"""Removing what is old, a bounded part at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from reservation_core.domain.history.retention import HistoryKind, Removed, StillNeeded

Place = tuple[datetime, str]
"""Where in the history of reservations, by the time they ended and id."""


@dataclass(frozen=True, slots=True)
class Removal:
    """One part: how many were removed, and after what the next part begins; None: at the oldest again."""

    count: int
    goes_on_after: Place | None = None


@dataclass(frozen=True, slots=True)
class RowRemoval:
    """The same for rows of the ledger, which are numbered."""

    count: int
    goes_on_after: int | None = None


class Retention(Protocol):
    """Removes what is old. Each call looks at no more than `limit` things, the oldest first; what is needed stays."""

    async def still_needed(self) -> StillNeeded:
        """What reads the ledger's history."""
        ...

    async def remove_reservations(self, before: datetime, after: Place | None, limit: int) -> Removal:
        """Jobs, bookings and maintenance windows that ended before a time, with everything that belongs to them.

        What is not summed up, not given back, or still used by pods of others is passed over.
        """
        ...

    async def remove_allocations(self, before: datetime, after: int | None, limit: int) -> RowRemoval:
        """Rows of the ledger, and promises, of reservations that ended before a time and stay themselves."""
        ...

    async def make_event_partitions(self) -> int:
        """Prepare the audit log for the months to come; returns how many partitions were made.

        Raises LockNotHadError when somebody reads for too long; the next time will do.
        """
        ...

    async def events_are_due(self, before: datetime) -> bool:
        """Whether a part of the audit log lies before that time as a whole."""
        ...

    async def oldest_open(self) -> datetime | None:
        """When the oldest reservation that is not over was made."""
        ...

    async def drop_events(self, before: datetime) -> int:
        """Drop the oldest part of the audit log that lies before a time as a whole; returns about how many events.

        Raises LockNotHadError like `make_event_partitions`.
        """
        ...

    async def remove_pod_logs(self, before: datetime, limit: int) -> int:
        """Kept ends of logs."""
        ...

    async def remove_keys(self, before: datetime, limit: int) -> int:
        """Answers to repeated requests."""
        ...

    async def oldest(self, kind: HistoryKind) -> datetime | None:
        """Since when there is something of a kind; None where there is nothing, or only the disk knows."""
        ...

    async def note(
        self, kind: HistoryKind, count: int, oldest_at: datetime | None, now: datetime, kept_bytes: int | None = None
    ) -> None:
        """Count what was removed."""
        ...

    async def standing(self) -> Sequence[Removed]:
        """What was removed so far."""
        ...


class LockNotHadError(Exception):
    """A table is in use for longer than others may be kept waiting, or not chained yet. Nothing was done; try again."""

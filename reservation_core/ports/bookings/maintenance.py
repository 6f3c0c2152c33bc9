"""Maintenance windows and what lies under them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from reservation_core.domain.bookings.maintenance import Affected, CardPlace, CoveredRow, Window, WindowChange
from reservation_core.domain.bookings.nouns import Span
from reservation_core.domain.changes import Record


class Maintenance(Protocol):
    """Windows in the calendar."""

    async def cards_of(self, nodes: Sequence[str], gpus: Sequence[tuple[str, int]]) -> list[CardPlace]:
        """Every card of these nodes, and these cards by (node, index); what is unknown is left out."""
        ...

    async def taken(self, gpu_ids: Sequence[int], span: Span) -> list[CoveredRow]:
        """Open rows of the ledger on these cards that touch a time."""
        ...

    async def live_within(self, booking_ids: Sequence[str]) -> list[str]:
        """Jobs that hold cards within these bookings."""
        ...

    async def drop_slots(self, job_ids: Sequence[str], record: Record, now: datetime) -> list[tuple[str, str]]:
        """Forget the times planned for these waiting jobs, record why, and have them planned anew.

        Returns those that had one, as (job id, user).
        """
        ...

    async def add(self, window: Window) -> None:
        """Store a window with its rows, record and message. Raises CalendarConflictError."""
        ...

    async def joined(self, now: datetime) -> dict[str, list[CardPlace]]:
        """Cards that have joined whole nodes of open windows since these were made, by window."""
        ...

    async def grow(
        self, window: Window, cards: Sequence[CardPlace], span: Span, affected: Sequence[Affected], now: datetime
    ) -> None:
        """Give a locked window more cards, for `span`, with its record and message. Raises CalendarConflictError."""
        ...

    async def lock(self, window_id: str) -> Window | None:
        """Read a window and keep others from changing it until the transaction ends."""
        ...

    async def due(self, now: datetime) -> list[str]:
        """Windows that begin or end by now."""
        ...

    async def apply(self, change: WindowChange) -> None:
        """Write a change with its record and message."""
        ...

    async def view(self, window_id: str) -> Window | None:
        """One window."""
        ...

    async def views(self, *, limit: int, before_seq: int | None, open_only: bool) -> list[Window]:
        """Newest first, older than `before_seq`."""
        ...

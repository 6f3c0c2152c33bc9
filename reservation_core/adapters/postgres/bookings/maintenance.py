"""Maintenance windows in PostgreSQL."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from sqlalchemy import Row
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.adapters.postgres.jobs.reservations import CALENDAR_CONSTRAINT, WriteConflictError
from reservation_core.domain.bookings.maintenance import (
    Affected,
    CardPlace,
    CoveredRow,
    Fate,
    Window,
    WindowChange,
    WindowStatus,
)
from reservation_core.domain.bookings.nouns import Span
from reservation_core.domain.changes import SYSTEM, Record
from reservation_core.domain.errors import CalendarConflictError
from reservation_core.domain.model import ReservationKind

_DEADLOCK = "40P01"


class Maintenance:
    """Windows in the calendar."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def cards_of(self, nodes: Sequence[str], gpus: Sequence[tuple[str, int]]) -> list[CardPlace]:
        """Every card of these nodes, and these cards by (node, index); what is unknown is left out."""
        found = await self._connection.execute(
            statement("cards_for_maintenance"),
            {
                "nodes": list(nodes),
                "gpu_nodes": [node for node, _ in gpus],
                "gpu_indices": [index for _, index in gpus],
            },
        )
        return [CardPlace(row.gpu_id, row.node, row.card_index) for row in found]

    async def taken(self, gpu_ids: Sequence[int], span: Span) -> list[CoveredRow]:
        """Open rows of the ledger on these cards that touch a time."""
        found = await self._connection.execute(
            statement("taken_by_others"), {"gpu_ids": list(gpu_ids), "start": span.start, "end": span.end}
        )
        return [
            CoveredRow(row.reservation_id, ReservationKind(row.kind), row.planned, row.booking_id, row.ends_at)
            for row in found
        ]

    async def live_within(self, booking_ids: Sequence[str]) -> list[str]:
        """Jobs that hold cards within these bookings."""
        found = await self._connection.execute(statement("live_jobs_within"), {"ids": list(booking_ids)})
        return [row.id for row in found]

    async def drop_slots(self, job_ids: Sequence[str], record: Record, now: datetime) -> list[tuple[str, str]]:
        """Forget the times planned for these waiting jobs, record why, and have them planned anew.

        Returns those that had one, as (job id, user).
        """
        found = await self._connection.execute(
            statement("drop_slots_for_maintenance"),
            {
                "ids": list(job_ids),
                "actor": record.actor,
                "kind": record.kind,
                "data": json.dumps(record.data),
                "now": now,
            },
        )
        return [(row.id, row.user_name) for row in found]

    async def add(self, window: Window) -> None:
        """Store a window with its rows, record and message. Raises CalendarConflictError."""
        with _told_as_conflict():
            await self._connection.execute(
                statement("add_window"),
                {
                    "id": window.id,
                    "user_id": window.user_id,
                    "status": window.status.value,
                    "reason": window.reason,
                    "gpus": len(window.cards),
                    "gpu_ids": [card.gpu_id for card in window.cards],
                    "start": window.span.start,
                    "end": window.span.end,
                    "affected": json.dumps([_described(affected_use) for affected_use in window.affected]),
                    "whole_nodes": list(window.whole_nodes),
                    "actor": window.user,
                    "now": window.created_at,
                },
            )

    async def joined(self, now: datetime) -> dict[str, list[CardPlace]]:
        """Cards that have joined whole nodes of open windows since these were made, by window."""
        found: dict[str, list[CardPlace]] = {}
        for row in await self._connection.execute(statement("joined_cards"), {"now": now}):
            found.setdefault(row.id, []).append(CardPlace(row.gpu_id, row.node, row.card_index))
        return found

    async def grow(
        self, window: Window, cards: Sequence[CardPlace], span: Span, affected: Sequence[Affected], now: datetime
    ) -> None:
        """Give a locked window more cards, for `span`, with its record and message. Raises CalendarConflictError."""
        with _told_as_conflict():
            written = await self._connection.execute(
                statement("add_to_window"),
                {
                    "id": window.id,
                    "version": window.version,
                    "gpu_ids": [card.gpu_id for card in cards],
                    "start": span.start,
                    "end": span.end,
                    "affected": json.dumps([_described(affected_use) for affected_use in affected]),
                    "actor": SYSTEM,
                    "now": now,
                },
            )
        if written.one().windows != 1:
            raise WriteConflictError(f"{window.id} was changed between reading and writing")

    async def lock(self, window_id: str) -> Window | None:
        """Lock a window until the transaction ends, and read it after that."""
        await self._connection.execute(statement("lock_window"), {"id": window_id})
        return await self.view(window_id)

    async def due(self, now: datetime) -> list[str]:
        """Windows that begin or end by now."""
        found = await self._connection.execute(statement("due_windows"), {"now": now})
        return [row.id for row in found]

    async def apply(self, change: WindowChange) -> None:
        """Write a change with its record and message."""
        late: list[str] = []
        if change.gives_back:
            await self._connection.execute(statement("close_window"), {"id": change.after.id, "now": change.at})
        else:
            found = await self._connection.execute(statement("late_on_window"), {"id": change.after.id})
            late = [row.reservation_id for row in found]
        written = await self._connection.execute(
            statement("update_window"),
            {
                "id": change.after.id,
                "version": change.before.version,
                "before": change.before.status.value,
                "status": change.after.status.value,
                "finished_at": change.after.finished_at,
                "actor": change.actor,
                "kind": change.kind,
                "data": json.dumps({"late": late} if late else {}),
                "now": change.at,
            },
        )
        if written.one().windows != 1:
            raise WriteConflictError(f"{change.after.id} was changed between reading and writing")

    async def view(self, window_id: str) -> Window | None:
        """One window."""
        found = await self._views(only=window_id, limit=1, before_seq=None, open_only=False)
        return found[0] if found else None

    async def views(self, *, limit: int, before_seq: int | None, open_only: bool) -> list[Window]:
        """Newest first, older than `before_seq`."""
        return await self._views(only=None, limit=limit, before_seq=before_seq, open_only=open_only)

    async def _views(self, **which: Any) -> list[Window]:
        found = await self._connection.execute(statement("window_views"), which)
        return [_window(row) for row in found]


@contextmanager
def _told_as_conflict() -> Iterator[None]:
    """Raise CalendarConflictError when somebody else was quicker."""
    try:
        yield
    except DBAPIError as error:
        if CALENDAR_CONSTRAINT in str(error.orig) or getattr(error.orig, "sqlstate", None) == _DEADLOCK:
            raise CalendarConflictError(
                "Somebody took some of these GPUs at this very moment. Send the request again."
            ) from error
        raise


def _window(row: Row[Any]) -> Window:
    return Window(
        id=row.id,
        seq=row.seq,
        user_id=row.user_id,
        user=row.user_name,
        status=WindowStatus(row.status),
        cards=tuple(CardPlace(*place) for place in zip(row.gpu_ids, row.nodes, row.indices, strict=True)),
        span=Span(row.starts_at, row.ends_at),
        reason=row.reason,
        created_at=row.created_at,
        version=row.version,
        affected=tuple(_affected(stored) for stored in row.affected),
        finished_at=row.finished_at,
        whole_nodes=tuple(row.whole_nodes),
    )


def _described(each: Affected) -> dict[str, Any]:
    return {
        "id": each.id,
        "kind": each.kind.value,
        "user": each.user,
        "fate": each.fate.value,
        "ends_at": _said(each.ends_at),
        "resumes_at": _said(each.resumes_at),
        "goes_on_as": each.goes_on_as,
    }


def _affected(stored: dict[str, Any]) -> Affected:
    # Windows that were made by an older program say nothing of what goes on.
    return Affected(
        stored["id"],
        ReservationKind(stored["kind"]),
        stored["user"],
        Fate(stored["fate"]),
        _read(stored["ends_at"]),
        _read(stored.get("resumes_at")),
        stored.get("goes_on_as"),
    )


def _said(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _read(said: str | None) -> datetime | None:
    return None if said is None else datetime.fromisoformat(said)

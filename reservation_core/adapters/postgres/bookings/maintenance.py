"""Maintenance windows in PostgreSQL."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from sqlalchemy import Row
from sqlalchemy.exc import DBAPIError

from reservation_core.adapters.postgres.bookings.bookings import is_lost_race
from reservation_core.adapters.postgres.jobs.reservations import WriteConflictError
from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.maintenance import (
    Affected,
    CoveredRow,
    GpuAddress,
    Window,
    WindowChange,
)
from reservation_core.domain.bookings.windows import Fate, WindowStatus
from reservation_core.domain.changes import SYSTEM, Record
from reservation_core.domain.errors import CalendarConflictError
from reservation_core.domain.statuses import ReservationKind


class Maintenance(StatementRunner):
    async def cards_of(self, nodes: Sequence[str], gpus: Sequence[tuple[str, int]]) -> list[GpuAddress]:
        """Every GPU of these nodes, and these GPUs by (node, index); unknown ones are left out."""
        rows = await self._run(
            "cards_for_maintenance",
            nodes=list(nodes),
            gpu_nodes=[node for node, _ in gpus],
            gpu_indices=[index for _, index in gpus],
        )
        return [GpuAddress(row.gpu_id, row.node, row.card_index) for row in rows]

    async def taken(self, gpu_ids: Sequence[int], span: Span) -> list[CoveredRow]:
        """Open ledger rows of these GPUs that overlap a span."""
        rows = await self._run("taken_by_others", gpu_ids=list(gpu_ids), start=span.start, end=span.end)
        return [
            CoveredRow(row.reservation_id, ReservationKind(row.kind), row.planned, row.booking_id, row.ends_at)
            for row in rows
        ]

    async def live_within(self, booking_ids: Sequence[str]) -> list[str]:
        """Jobs that hold GPUs within these bookings."""
        return [row.id for row in await self._run("live_jobs_within", ids=list(booking_ids))]

    async def drop_slots(self, job_ids: Sequence[str], record: Record, now: datetime) -> list[tuple[str, str]]:
        """Drop the slots of these waiting jobs, record why, and trigger a new plan.

        Returns the jobs that had a slot, as (job id, user).
        """
        rows = await self._run(
            "drop_slots_for_maintenance",
            ids=list(job_ids),
            actor=record.actor,
            kind=record.kind,
            data=json.dumps(record.data),
            now=now,
        )
        return [(row.id, row.user_name) for row in rows]

    async def add(self, window: Window) -> None:
        """Store a window with its ledger rows, event and message. Raises CalendarConflictError."""
        with _races_as_conflicts():
            await self._run(
                "add_window",
                id=window.id,
                user_id=window.user_id,
                status=window.status.value,
                reason=window.reason,
                gpus=len(window.cards),
                gpu_ids=[card.gpu_id for card in window.cards],
                start=window.span.start,
                end=window.span.end,
                affected=json.dumps([_described(affected_use) for affected_use in window.affected]),
                whole_nodes=list(window.whole_nodes),
                actor=window.user,
                now=window.created_at,
            )

    async def joined(self, now: datetime) -> dict[str, list[GpuAddress]]:
        """New GPUs of nodes that open windows cover as a whole, by window."""
        joined: dict[str, list[GpuAddress]] = {}
        for row in await self._run("joined_cards", now=now):
            joined.setdefault(row.id, []).append(GpuAddress(row.gpu_id, row.node, row.card_index))
        return joined

    async def grow(
        self, window: Window, cards: Sequence[GpuAddress], span: Span, affected: Sequence[Affected], now: datetime
    ) -> None:
        """Add GPUs to a locked window for `span`, with an event and a message. Raises CalendarConflictError."""
        with _races_as_conflicts():
            written = await self._run(
                "add_to_window",
                id=window.id,
                version=window.version,
                gpu_ids=[card.gpu_id for card in cards],
                start=span.start,
                end=span.end,
                affected=json.dumps([_described(affected_use) for affected_use in affected]),
                actor=SYSTEM,
                now=now,
            )
        if written.one().windows != 1:
            raise WriteConflictError(f"{window.id} was changed between reading and writing")

    async def lock(self, window_id: str) -> Window | None:
        """Lock a window until the transaction ends, then read it."""
        await self._run("lock_window", id=window_id)
        return await self.view(window_id)

    async def due(self, now: datetime) -> list[str]:
        """Windows whose start or end is due."""
        return [row.id for row in await self._run("due_windows", now=now)]

    async def apply(self, change: WindowChange) -> None:
        """Write a change with its event and message."""
        late: list[str] = []
        if change.gives_back:
            await self._run("close_window", id=change.after.id, now=change.at)
        else:
            rows = await self._run("late_on_window", id=change.after.id)
            late = [row.reservation_id for row in rows]
        written = await self._run(
            "update_window",
            id=change.after.id,
            version=change.before.version,
            before=change.before.status.value,
            status=change.after.status.value,
            finished_at=change.after.finished_at,
            actor=change.actor,
            kind=change.kind,
            data=json.dumps({"late": late} if late else {}),
            now=change.at,
        )
        if written.one().windows != 1:
            raise WriteConflictError(f"{change.after.id} was changed between reading and writing")

    async def view(self, window_id: str) -> Window | None:
        windows = await self._views(only=window_id, limit=1, before_seq=None, open_only=False)
        return windows[0] if windows else None

    async def views(self, *, limit: int, before_seq: int | None, open_only: bool) -> list[Window]:
        """Windows before `before_seq`, newest first."""
        return await self._views(only=None, limit=limit, before_seq=before_seq, open_only=open_only)

    async def _views(self, **which: Any) -> list[Window]:
        return [_window(row) for row in await self._run("window_views", **which)]


@contextmanager
def _races_as_conflicts() -> Iterator[None]:
    """Raise CalendarConflictError when another transaction has taken a GPU."""
    try:
        yield
    except DBAPIError as error:
        if is_lost_race(error):
            raise CalendarConflictError(
                "Another request took some of these GPUs at the same moment. Send the request again."
            ) from error
        raise


def _window(row: Row[Any]) -> Window:
    return Window(
        id=row.id,
        seq=row.seq,
        user_id=row.user_id,
        user=row.user_name,
        status=WindowStatus(row.status),
        cards=tuple(GpuAddress(*place) for place in zip(row.gpu_ids, row.nodes, row.indices, strict=True)),
        span=Span(row.starts_at, row.ends_at),
        reason=row.reason,
        created_at=row.created_at,
        version=row.version,
        affected=tuple(_affected(stored) for stored in row.affected),
        finished_at=row.finished_at,
        whole_nodes=tuple(row.whole_nodes),
    )


def _described(affected: Affected) -> dict[str, Any]:
    return {
        "id": affected.id,
        "kind": affected.kind.value,
        "user": affected.user,
        "fate": affected.fate.value,
        "ends_at": _written(affected.ends_at),
        "resumes_at": _written(affected.resumes_at),
        "goes_on_as": affected.goes_on_as,
    }


def _affected(stored: dict[str, Any]) -> Affected:
    # Windows of older versions lack the last two.
    return Affected(
        stored["id"],
        ReservationKind(stored["kind"]),
        stored["user"],
        Fate(stored["fate"]),
        _read(stored["ends_at"]),
        _read(stored.get("resumes_at")),
        stored.get("goes_on_as"),
    )


def _written(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _read(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)

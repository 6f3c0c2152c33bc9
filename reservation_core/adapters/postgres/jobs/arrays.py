"""Arrays of jobs in PostgreSQL: how far they are, and their elements. Triggers note what happens to elements."""

from collections.abc import Collection
from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import Row

from reservation_core.adapters.postgres.connection import direct
from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.domain.event_kinds import JobEventKind
from reservation_core.domain.jobs.arrays import ArrayState
from reservation_core.domain.model import Reason
from reservation_core.domain.statuses import JobStatus

_SCANNED = 2000
_FIELDS = [field.name for field in fields(ArrayState)]


class Arrays(StatementRunner):
    """Arrays and what has happened to them."""

    async def with_news(self, limit: int, leave_out: Collection[str] = ()) -> list[str]:
        """Arrays that have to be looked at, other than those to leave out."""
        parameters = {"leave_out": list(leave_out), "scanned": _SCANNED, "limit": limit}
        return [row["array_id"] for row in await direct.fetch(self._connection, "arrays_with_news", parameters)]

    async def take_news(self, array_id: str) -> tuple[ArrayState, int] | None:
        """Count what has happened to the elements since the last time; the state, and how much it was.

        Lock the array's row before. None: there is no such array.
        """
        row = (await self._run("take_array_news", id=array_id)).one_or_none()
        return None if row is None else (_state(row), row.news)

    async def forget_news(self, array_id: str) -> None:
        """Forget what has happened to an array that is not there any more."""
        await self._run("forget_array_news", id=array_id)

    async def note(self, array_id: str) -> None:
        """Have an array looked at once more."""
        await self._run("note_array", id=array_id)

    async def states(self, ids: Collection[str]) -> dict[str, ArrayState]:
        """How far these arrays are."""
        return {row.id: _state(row) for row in await self._run("array_states", ids=list(ids))}

    async def open_elements(self, array_id: str, limit: int) -> list[str]:
        """Elements that are not over and whose end was not asked for."""
        return [row.id for row in await self._run("open_elements", id=array_id, limit=limit)]

    async def make(self, array_id: str, count: int, reason: Reason, now: datetime) -> None:
        """Make the next elements, with their events and messages. Lock the array's row before."""
        await self._run(
            "make_elements",
            id=array_id,
            count=count,
            status=JobStatus.QUEUED.value,
            reason_code=reason.code.value,
            reason=reason.detail,
            event_kind=JobEventKind.SUBMITTED.value,
            now=now,
        )


def _state(row: Row[Any]) -> ArrayState:
    return ArrayState(**{name: getattr(row, name) for name in _FIELDS})

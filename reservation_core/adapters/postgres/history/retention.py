"""Removing what is old from PostgreSQL, in parts that no one waits for."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import CursorResult, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.domain.history.retention import HistoryKind, Removed, StillNeeded
from reservation_core.ports.history.retention import LockNotHadError, Place, Removal, RowRemoval

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_MONTHS_AHEAD = 3
_LOCK_PATIENCE = "SET LOCAL lock_timeout = '100ms'"
_PUT_OFF = frozenset({"55P03", "55006"})
"""A lock that was not had in time; a partition that is not chained yet."""
_OLDEST = {
    HistoryKind.EVENTS: "oldest_event",
    HistoryKind.JOBS: "oldest_ended_reservation",
    HistoryKind.ALLOCATIONS: "oldest_allocation",
    HistoryKind.POD_LOGS: "oldest_pod_log",
    HistoryKind.IDEMPOTENCY: "oldest_key",
}
_BELONGINGS = (
    "remove_allocations_of",
    "remove_promises_of",
    "unlink_started_jobs",
    "remove_pod_logs_of",
    "remove_admissions_of",
    "remove_windows_of",
)


class Retention:
    """Removes what is old. Each call looks at no more than `limit` things, the oldest first; what is needed stays."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def still_needed(self) -> StillNeeded:
        """What reads the ledger's history."""
        row = (await self._run("still_needed")).one()
        half_life = None if row.half_life_s is None else timedelta(seconds=row.half_life_s)
        return StillNeeded(row.cooldown, half_life, row.counted_until)

    async def remove_reservations(self, before: datetime, after: Place | None, limit: int) -> Removal:
        """Jobs, bookings and maintenance windows that ended before a time, with everything that belongs to them.

        Rows that are not summed up, not given back, or still used by pods of others are passed over.
        """
        after_at, after_id = after or (_BEGINNING, "")
        found = await self._run(
            "removable_reservations", before=before, after_at=after_at, after_id=after_id, limit=limit
        )
        row = found.one()
        ids = [locked.id for locked in await self._run("lock_ended_reservations", ids=row.ids)] if row.ids else []
        if ids:
            await self._run("begin_retention")
            for name in _BELONGINGS:
                await self._run(name, ids=ids)
            series = {booking.series_id for booking in await self._run("remove_bookings_of", ids=ids)} - {None}
            await self._run("remove_empty_series", ids=sorted(series))
            await self._run("remove_reservations", ids=ids)
        if ids:
            # From the same place: what follows has moved up, and a booking whose jobs have just gone comes once more.
            return Removal(len(ids), after)
        return Removal(0, None if row.looked_at < limit else (row.last_at, row.last_id))

    async def remove_allocations(self, before: datetime, after: int | None, limit: int) -> RowRemoval:
        """Rows of the ledger, and promises, of reservations that ended before a time and stay themselves."""
        found = await self._run("removable_allocations", before=before, after_id=after or 0, limit=limit)
        row = found.one()
        count = 0
        if row.ids:
            heads = [claimed.id for claimed in await self._run("claim_usage", ids=row.ids)]
            await self._run("keep_usage", heads=heads)
            await self._run("begin_retention")
            count = (await self._run("remove_allocations", ids=row.ids, heads=heads)).scalar_one()
        return RowRemoval(count, after if count else row.last_id if row.looked_at == limit else None)

    async def make_event_partitions(self) -> int:
        """Prepare the audit log for the months to come; returns how many partitions were made.

        Raises LockNotHadError when somebody reads for too long; the next time will do.
        """
        return int(await self._at_once("make_event_partitions", months=_MONTHS_AHEAD) or 0)

    async def events_are_due(self, before: datetime) -> bool:
        """Whether a part of the audit log lies before that time as a whole."""
        return bool((await self._run("event_partition_is_due", before=before)).scalar_one())

    async def oldest_open(self) -> datetime | None:
        """When the oldest reservation that is not over was made."""
        oldest: datetime | None = (await self._run("oldest_open_reservation")).scalar_one_or_none()
        return oldest

    async def drop_events(self, before: datetime) -> int:
        """Drop the oldest part of the audit log that lies before a time as a whole; returns about how many events.

        Raises LockNotHadError like `make_event_partitions`.
        """
        return int(await self._at_once("drop_event_partition", before=before) or 0)

    async def remove_pod_logs(self, before: datetime, limit: int) -> int:
        """Kept ends of logs."""
        return (await self._run("remove_pod_logs", before=before, limit=limit)).rowcount

    async def remove_keys(self, before: datetime, limit: int) -> int:
        """Answers to repeated requests."""
        return (await self._run("remove_keys", before=before, limit=limit)).rowcount

    async def oldest(self, kind: HistoryKind) -> datetime | None:
        """Since when there is something of a kind; None where there is nothing, or only the disk knows."""
        name = _OLDEST.get(kind)
        oldest: datetime | None = None if name is None else (await self._run(name)).scalar_one_or_none()
        return oldest

    async def note(
        self, kind: HistoryKind, count: int, oldest_at: datetime | None, now: datetime, kept_bytes: int | None = None
    ) -> None:
        """Count what was removed."""
        values = {"removed": count, "oldest_at": oldest_at, "now": now, "kept_bytes": kept_bytes}
        await self._run("note_removed", kind=kind.value, **values)

    async def standing(self) -> Sequence[Removed]:
        """What was removed so far."""
        return [
            Removed(HistoryKind(row.kind), row.removed, row.oldest_at, row.kept_bytes, row.looked_at)
            for row in await self._run("retention_standing")
        ]

    async def _run(self, name: str, **values: Any) -> CursorResult[Any]:
        return await self._connection.execute(statement(name), values)

    async def _at_once(self, name: str, **values: Any) -> Any:
        """What needs a lock that others would queue behind: it is had within a moment, or not at all."""
        try:
            async with self._connection.begin_nested():
                await self._connection.execute(text(_LOCK_PATIENCE))
                answer = (await self._run(name, **values)).scalar_one_or_none()
                await self._connection.execute(text("SET LOCAL lock_timeout = 0"))
                return answer
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) not in _PUT_OFF:
                raise
            raise LockNotHadError(str(error.orig)) from error

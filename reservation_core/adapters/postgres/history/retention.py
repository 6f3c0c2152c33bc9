"""Remove old history from PostgreSQL, in small steps that block nobody."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.domain.history.retention import HistoryKind, HistoryReaders, Removed
from reservation_core.ports.history.retention import LockTimeoutError, Place, Removal, RowRemoval

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_MONTHS_AHEAD = 3
_LOCK_PATIENCE = "SET LOCAL lock_timeout = '100ms'"
_POSTPONED = frozenset({"55P03", "55006"})
"""The lock timeout has passed; the partition is not chained yet."""
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


class Retention(StatementRunner):
    """Removes old history. A call scans at most `limit` objects, oldest first, and keeps what is still needed."""

    async def still_needed(self) -> HistoryReaders:
        """What still reads the ledger's history."""
        row = (await self._run("still_needed")).one()
        half_life = None if row.half_life_s is None else timedelta(seconds=row.half_life_s)
        return HistoryReaders(row.cooldown, half_life, row.counted_until)

    async def remove_reservations(self, before: datetime, after: Place | None, limit: int) -> Removal:
        """Remove jobs, bookings and maintenance windows that ended before a time, with all their rows.

        Those that are not summed up, not given back, or still used by foreign pods are skipped.
        """
        after_at, after_id = after or (_BEGINNING, "")
        removable = await self._run(
            "removable_reservations", before=before, after_at=after_at, after_id=after_id, limit=limit
        )
        row = removable.one()
        ids = [locked.id for locked in await self._run("lock_ended_reservations", ids=row.ids)] if row.ids else []
        if ids:
            await self._run("begin_retention")
            for name in _BELONGINGS:
                await self._run(name, ids=ids)
            series = {booking.series_id for booking in await self._run("remove_bookings_of", ids=ids)} - {None}
            await self._run("remove_empty_series", ids=sorted(series))
            await self._run("remove_reservations", ids=ids)
        if ids:
            # Continue at the same place: bookings whose jobs were just removed are now removable.
            return Removal(len(ids), after)
        return Removal(0, None if row.looked_at < limit else (row.last_at, row.last_id))

    async def remove_allocations(self, before: datetime, after: int | None, limit: int) -> RowRemoval:
        """Remove ledger rows and promises of reservations that ended before a time; the reservations stay."""
        row = (await self._run("removable_allocations", before=before, after_id=after or 0, limit=limit)).one()
        count = 0
        if row.ids:
            heads = [claimed.id for claimed in await self._run("claim_usage", ids=row.ids)]
            await self._run("keep_usage", heads=heads)
            await self._run("begin_retention")
            count = (await self._run("remove_allocations", ids=row.ids, heads=heads)).scalar_one()
        return RowRemoval(count, after if count else row.last_id if row.looked_at == limit else None)

    async def make_event_partitions(self) -> int:
        """Create partitions of the audit log for the next months; returns their number.

        Raises LockTimeoutError when a long read blocks it; the next run tries again.
        """
        return int(await self._run_impatiently("make_event_partitions", months=_MONTHS_AHEAD) or 0)

    async def events_are_due(self, before: datetime) -> bool:
        """Whether a whole partition of the audit log is older than a time."""
        return bool((await self._run("event_partition_is_due", before=before)).scalar_one())

    async def oldest_open(self) -> datetime | None:
        """The creation time of the oldest open reservation."""
        oldest: datetime | None = (await self._run("oldest_open_reservation")).scalar_one_or_none()
        return oldest

    async def drop_events(self, before: datetime) -> int:
        """Drop the oldest partition of the audit log that is older than a time; returns its approximate size in events.

        Raises LockTimeoutError like `make_event_partitions`.
        """
        return int(await self._run_impatiently("drop_event_partition", before=before) or 0)

    async def make_gpu_use_partitions(self) -> int:
        """Create the days of samples of GPUs and of their roll-ups by minute; returns their number."""
        return int((await self._run("make_gpu_use_partitions")).scalar_one())

    async def drop_gpu_use_partition(self, patience: timedelta) -> bool:
        """Drop the oldest day of samples or of roll-ups by minute that is over, or have one compressed.

        False when there is none. Raises LockTimeoutError like `make_event_partitions`.
        """
        milliseconds = round(patience / timedelta(milliseconds=1))
        await self._connection.execute(text(f"SET LOCAL statement_timeout = {milliseconds}"))
        return await self._run_impatiently("drop_gpu_use_partition") is not None

    async def remove_pod_logs(self, before: datetime, limit: int) -> int:
        return (await self._run("remove_pod_logs", before=before, limit=limit)).rowcount

    async def remove_keys(self, before: datetime, limit: int) -> int:
        """Remove answers kept for Idempotency-Keys."""
        return (await self._run("remove_keys", before=before, limit=limit)).rowcount

    async def oldest(self, kind: HistoryKind) -> datetime | None:
        """The oldest time of a kind; None without any, or for kinds outside the database."""
        name = _OLDEST.get(kind)
        oldest: datetime | None = None if name is None else (await self._run(name)).scalar_one_or_none()
        return oldest

    async def note(
        self, kind: HistoryKind, count: int, oldest_at: datetime | None, now: datetime, kept_bytes: int | None = None
    ) -> None:
        """Count removed objects."""
        values = {"removed": count, "oldest_at": oldest_at, "now": now, "kept_bytes": kept_bytes}
        await self._run("note_removed", kind=kind.value, **values)

    async def standing(self) -> Sequence[Removed]:
        """The totals of removed objects."""
        return [
            Removed(HistoryKind(row.kind), row.removed, row.oldest_at, row.kept_bytes, row.looked_at)
            for row in await self._run("retention_standing")
        ]

    async def _run_impatiently(self, name: str, **values: Any) -> Any:
        """Run a statement whose lock would block others, with a short lock timeout."""
        try:
            async with self._connection.begin_nested():
                await self._connection.execute(text(_LOCK_PATIENCE))
                answer = (await self._run(name, **values)).scalar_one_or_none()
                await self._connection.execute(text("SET LOCAL lock_timeout = 0"))
                return answer
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) not in _POSTPONED:
                raise
            raise LockTimeoutError(str(error.orig)) from error

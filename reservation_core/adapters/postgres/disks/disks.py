"""Disks of users in PostgreSQL."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row

from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.domain.disks.disk_life import state_of
from reservation_core.domain.disks.disk_uses import DiskUse
from reservation_core.ports.disks.disks import DiskInUse, DiskRecord, SnapshotRecord


class Disks(StatementRunner):
    """Disks, and which jobs have them. Changes of one user's disks follow each other: see `lock_users`."""

    async def lock_users(self, *user_ids: int) -> None:
        """Let no other transaction change these users' disks until this one ends."""
        await self._run("lock_users_of_disks", user_ids=list(user_ids))

    async def totals(self, user_id: int, but: str = "") -> tuple[int, int]:
        """How many disks a locked user has, and of how many bytes with snapshots, without the disk `but`."""
        row = (await self._run("disk_totals_of", user_id=user_id, but=but)).one()
        return row.disks, row.bytes

    async def bytes_in_all(self, but: str = "") -> int:
        """How many bytes all disks have together, without `but`. No other disk grows until the transaction ends."""
        await self._run("lock_room_for_disks")
        total: int = (await self._run("disk_bytes_in_all", but=but)).scalar_one()
        return total

    async def add(self, disk_id: str, user_id: int, name: str, size_bytes: int, now: datetime) -> DiskRecord | None:
        """Store a disk that is to be made; None where the user has one of that name."""
        return await self._first(
            _record, "add_disk", id=disk_id, user_id=user_id, name=name, size_bytes=size_bytes, now=now
        )

    async def page(self, user_id: int, *, deleted: bool, after: tuple[str, str], limit: int) -> list[DiskRecord]:
        """A user's disks after a name and an id, in this order."""
        name, disk_id = after
        rows = await self._run("disks_of", user_id=user_id, deleted=deleted, name=name, id=disk_id, limit=limit)
        return [_record(row) for row in rows]

    async def named(self, user_id: int, name: str, *, deleted: bool = False) -> DiskRecord | None:
        """A user's disk, or with `deleted` the last deleted one of that name."""
        return await self._first(_record, "disk_named", user_id=user_id, name=name, deleted=deleted)

    async def lock(self, user_id: int, names: Collection[str]) -> set[str]:
        """Lock a user's disks of these names, also deleted ones, until the transaction ends; returns their ids."""
        return {row.id for row in await self._run("lock_disks_named", user_id=user_id, names=list(names))}

    async def all_named(self, user_id: int, names: Collection[str]) -> dict[str, DiskRecord]:
        """Those of the names that are disks of the user."""
        rows = await self._run("disks_named", user_id=user_id, names=list(names))
        return {row.name: _record(row) for row in rows}

    async def change(self, disk: DiskRecord, now: datetime) -> None:
        """Store a locked disk's owner, name, size and deletion. A used one is not deleted, and stays its owner's."""
        await self._run("end_uses_of_disks", ids=[disk.id], now=now)
        await self._run(
            "change_disk",
            id=disk.id,
            user_id=disk.user_id,
            name=disk.name,
            size_bytes=disk.size_bytes,
            deleted_at=disk.deleted_at,
        )

    async def use(self, reservation_id: str, uses: Sequence[DiskUse], now: datetime) -> None:
        """Let a job have disks, which are locked, until it ends."""
        ids = [use.disk_id for use in uses]
        await self._run("end_uses_of_disks", ids=ids, now=now)
        read_onlys = [use.read_only for use in uses]
        await self._run("add_disk_uses", reservation_id=reservation_id, ids=ids, read_onlys=read_onlys)

    async def was_used(self, disk_id: str) -> bool:
        """Whether a job has, or has had, a locked disk."""
        found: bool = (await self._run("disk_was_used", id=disk_id)).scalar_one()
        return found

    async def end_uses(self, now: datetime, limit: int) -> int:
        """Take the disks from jobs that have ended; returns how many disks these were."""
        return (await self._run("end_disk_uses", now=now, limit=limit)).rowcount

    async def to_settle(self, deleted_before: datetime, failed_before: datetime, limit: int) -> list[DiskRecord]:
        """Disks for which the cluster has something to do that has not failed since `failed_before`."""
        values = {"deleted_before": deleted_before, "failed_before": failed_before, "limit": limit}
        rows = await self._run("disks_to_settle", **values)
        return [_record(row) for row in rows]

    async def begin_removal(self, disk_id: str, deleted_before: datetime) -> bool:
        """Let nobody restore a disk that is due to be removed; false where somebody has restored it."""
        found = await self._run("begin_disk_removal", id=disk_id, deleted_before=deleted_before)
        return found.one_or_none() is not None

    async def note_made(self, disk_id: str, size_bytes: int) -> None:
        """Note that the cluster has given a disk this size."""
        await self._run("note_disk_made", id=disk_id, size_bytes=size_bytes)

    async def note_failure(self, disk_id: str, problem: str | None, now: datetime) -> None:
        """Note that the cluster could not do its part, and why if that is for its owner to know."""
        await self._run("note_disk_failure", id=disk_id, problem=problem, now=now)

    async def remove(self, disk_id: str) -> str | None:
        """Remove the row of a disk that the cluster has removed; returns its owner's name, None where there is none."""
        return (await self._run("remove_disk", id=disk_id)).scalar_one_or_none()

    async def to_measure(self, measured_before: datetime, limit: int) -> list[tuple[str, int]]:
        """Disks on which there may be more or less than when they were measured, and the sizes that they were given."""
        rows = await self._run("disks_to_measure", measured_before=measured_before, limit=limit)
        return [(row.id, row.made_bytes) for row in rows]

    async def note_use(self, disk_id: str, used_bytes: int | None, now: datetime) -> None:
        """Note how much is on a disk."""
        await self._run("note_disk_use", id=disk_id, used_bytes=used_bytes, now=now)


def _snapshot(stored: dict[str, Any]) -> SnapshotRecord:
    return SnapshotRecord(**{**stored, "created_at": datetime.fromisoformat(stored["created_at"])})


def _record(row: Row[Any]) -> DiskRecord:
    return DiskRecord(
        id=row.id,
        user_id=row.user_id,
        name=row.name,
        size_bytes=row.size_bytes,
        state=state_of(row.size_bytes, row.made_bytes, row.deleted_at, is_removing=row.removing),
        created_at=row.created_at,
        deleted_at=row.deleted_at,
        made_bytes=row.made_bytes,
        used_bytes=row.used_bytes,
        measured_at=row.measured_at,
        problem=row.problem,
        uses=tuple(DiskInUse(job, read_only) for job, read_only in row.uses),
        snapshots=tuple(_snapshot(stored) for stored in row.snapshots),
    )

"""Snapshots of disks in PostgreSQL, and copies that are not made yet."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import Row

from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.ports.disks.disks import DiskCopy, SnapshotRecord


class Snapshots(StatementRunner):
    """Snapshots and copies. Those of a disk change while its row is locked: see `Disks.lock`."""

    async def add(self, disk_id: str, snapshot: SnapshotRecord) -> bool:
        """Store a snapshot that is to be taken; false where the disk has one of that name."""
        added = await self._run(
            "add_snapshot",
            id=snapshot.id,
            disk_id=disk_id,
            name=snapshot.name,
            size_bytes=snapshot.size_bytes,
            now=snapshot.created_at,
        )
        return added.one_or_none() is not None

    async def add_copy(self, copy: DiskCopy, now: datetime) -> None:
        """Let a copy be made. Jobs that have ended do not have the disk any more."""
        await self._run("end_uses_of_disks", ids=[copy.disk_id], now=now)
        await self._run(
            "add_disk_copy",
            clone_id=copy.clone_id,
            into_snapshot_id=copy.into_snapshot_id,
            disk_id=copy.disk_id,
            snapshot_id=copy.snapshot_id,
            is_still=copy.is_still,
        )

    async def copies_of(self, disk_ids: Collection[str]) -> list[DiskCopy]:
        """Copies that are not made yet: of these disks, of their snapshots, or into these disks."""
        return [_copy(row) for row in await self._run("copies_of_disks", ids=list(disk_ids))]

    async def copies_to_make(self, failed_before: datetime, limit: int) -> list[DiskCopy]:
        """Copies to make that were not tried since `failed_before`."""
        return [_copy(row) for row in await self._run("copies_to_make", failed_before=failed_before, limit=limit)]

    async def note_copied(self, copy: DiskCopy, made_bytes: int) -> bool:
        """Note that the cluster has made a copy; false where nobody wants it any more."""
        if (await self._run("end_disk_copy", id=copy.target_id)).one_or_none() is None:
            return False
        if copy.clone_id is None:
            await self._run("note_snapshot_made", id=copy.target_id)
        else:
            await self._run("note_disk_made", id=copy.clone_id, size_bytes=made_bytes)
        return True

    async def note_begun(self, copy: DiskCopy, now: datetime) -> None:
        """Note that the cluster makes a copy, which is not there yet."""
        name = "note_snapshot_begun" if copy.clone_id is None else "note_clone_begun"
        await self._run(name, id=copy.target_id, now=now)

    async def note_clone_failure(self, copy: DiskCopy, problem: str | None, now: datetime) -> list[str]:
        """Note that the cluster could not make a clone, which some jobs have: they are returned.

        With a problem, one that was deleted before is given up.
        """
        values = {"id": copy.target_id, "problem": problem, "deleted_at": copy.deleted_at, "now": now}
        found = (await self._run("note_clone_failure", **values)).scalar_one_or_none()
        return [job for job, _ in found or ()]

    async def note_failure(self, snapshot_id: str, problem: str | None, now: datetime) -> None:
        """Note that the cluster could not do its part, and why if that is for the owner to know."""
        await self._run("note_snapshot_failure", id=snapshot_id, problem=problem, now=now)

    async def begin_removal(self, snapshot_id: str) -> None:
        """Let nobody have a snapshot of a locked disk. Where it is not taken yet, the disk is not copied any more."""
        await self._run("end_disk_copy", id=snapshot_id)
        await self._run("begin_snapshot_removal", id=snapshot_id)

    async def begin_removal_of_all(self, disk_id: str) -> list[str]:
        """Let nobody have the snapshots of a disk that is being removed; returns those that are left."""
        return [row.id for row in await self._run("begin_removal_of_snapshots", disk_id=disk_id)]

    async def to_remove(self, failed_before: datetime, limit: int) -> list[str]:
        """Snapshots that the cluster has to remove."""
        rows = await self._run("snapshots_to_remove", failed_before=failed_before, limit=limit)
        return [row.id for row in rows]

    async def remove(self, snapshot_id: str) -> None:
        """Remove the row of a snapshot that the cluster has removed."""
        await self._run("remove_snapshot", id=snapshot_id)


def _copy(row: Row[Any]) -> DiskCopy:
    return DiskCopy(
        disk_id=row.disk_id,
        size_bytes=row.size_bytes,
        target=f"the snapshot {row.snapshot}" if row.clone is None else f"the disk {row.clone}",
        is_still=row.is_still,
        snapshot_id=row.snapshot_id,
        clone_id=row.clone_id,
        into_snapshot_id=row.into_snapshot_id,
        deleted_at=row.deleted_at,
    )

"""Bring the cluster's disks to what the rows say: made, resized, removed; and take them from jobs that have ended.

Snapshots are removed here, too, those of a disk before the disk; `copy_disks` makes them.

A row is stored before the cluster makes anything for it, and removed after the cluster has removed all of it. So a
process that is killed at any moment leaves work for the next look, and nothing that no row knows.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.domain.disks.disk_life import DiskState, DiskStep, next_step
from reservation_core.domain.event_kinds import PeopleEventKind
from reservation_core.ports.clock import Clock
from reservation_core.ports.disks.disks import DiskRecord, DiskRefusedError, DiskStore

_BATCH: Final = 50
_SYSTEM: Final = "system"


@dataclass(frozen=True, slots=True)
class DiskRules:
    """Deleted disks are kept for `kept`; disks in use are measured every `measured_every`.

    What failed with a disk is tried again after `rest`, and a copy that is refused again after twice as long as before,
    `longest_rest` at most. What the cluster has begun is looked at after `pending_rest`.
    """

    kept: timedelta
    rest: timedelta = timedelta(minutes=1)
    longest_rest: timedelta = timedelta(hours=1)
    pending_rest: timedelta = timedelta(seconds=5)
    measured_every: timedelta = timedelta(minutes=1)


async def settle_disks(
    uow_factory: UnitOfWorkFactory, store: DiskStore, clock: Clock, rules: DiskRules, copying: Collection[str] = ()
) -> int:
    """Settle some disks and snapshots; returns how many were made, resized or removed.

    Targets of `copying` are left alone. Raises what the store raises; that disk then rests, so that the next look
    begins with others.
    """
    now = clock.now()
    deleted_before = now - rules.kept
    async with uow_factory(one_statement=True) as uow:
        due = await uow.disks.to_settle(deleted_before, now - rules.rest, _BATCH)
    settled = await _remove_snapshots(uow_factory, store, clock, now - rules.rest, copying)
    for disk in due:
        if disk.id in copying:
            continue
        try:
            settled += await _settle(uow_factory, store, clock, disk, deleted_before, copying)
        except Exception as error:
            problem = str(error) if isinstance(error, DiskRefusedError) else None
            async with uow_factory(one_statement=True) as uow:
                await uow.disks.note_failure(disk.id, problem, clock.now())
            if not isinstance(error, DiskRefusedError):
                raise
    return settled


async def _settle(
    uow_factory: UnitOfWorkFactory,
    store: DiskStore,
    clock: Clock,
    disk: DiskRecord,
    deleted_before: datetime,
    copying: Collection[str],
) -> bool:
    step = DiskStep.REMOVE if disk.state is DiskState.DELETED else next_step(disk.state)
    match step:
        case DiskStep.MAKE:
            await store.make(disk.id, disk.size_bytes)
            async with uow_factory(one_statement=True) as uow:
                await uow.disks.note_made(disk.id, disk.size_bytes)
            return True
        case DiskStep.REMOVE:
            async with uow_factory() as uow:
                is_to_go = await uow.disks.begin_removal(disk.id, deleted_before)
                snapshots = await uow.snapshots.begin_removal_of_all(disk.id) if is_to_go else []
            if any(snapshot_id in copying for snapshot_id in snapshots):
                return False  # it goes once the copy is made
            if is_to_go:
                for snapshot_id in snapshots:
                    await _remove_snapshot(uow_factory, store, snapshot_id)
                await store.remove(disk.id)
                await _forget(uow_factory, clock, disk)
            return is_to_go
        case None:
            return False


async def _remove_snapshots(
    uow_factory: UnitOfWorkFactory, store: DiskStore, clock: Clock, failed_before: datetime, copying: Collection[str]
) -> int:
    async with uow_factory(one_statement=True) as uow:
        due = await uow.snapshots.to_remove(failed_before, _BATCH)
    removed = 0
    for snapshot_id in due:
        if snapshot_id in copying:
            continue
        try:
            await _remove_snapshot(uow_factory, store, snapshot_id)
            removed += 1
        except Exception as error:
            async with uow_factory(one_statement=True) as uow:
                await uow.snapshots.note_failure(snapshot_id, None, clock.now())
            if not isinstance(error, DiskRefusedError):
                raise
    return removed


async def _remove_snapshot(uow_factory: UnitOfWorkFactory, store: DiskStore, snapshot_id: str) -> None:
    await store.remove_snapshot(snapshot_id)
    async with uow_factory(one_statement=True) as uow:
        await uow.snapshots.remove(snapshot_id)


async def measure_disks(uow_factory: UnitOfWorkFactory, store: DiskStore, clock: Clock, rules: DiskRules) -> None:
    """Take disks from jobs that have ended, and measure what jobs write to or have given back since.

    Raises what the store raises, after the others are measured; how much is on such a disk is not known.
    """
    async with uow_factory(one_statement=True) as uow:
        await uow.disks.end_uses(clock.now(), _BATCH)
        due = await uow.disks.to_measure(clock.now() - rules.measured_every, _BATCH)
    errors: list[Exception] = []
    for disk_id, size_bytes in due:
        begun, used = clock.now(), None
        try:
            used = await store.measure(disk_id, size_bytes)
        except Exception as error:  # noqa: BLE001 -- raised once the others are measured
            errors.append(error)
        async with uow_factory(one_statement=True) as uow:
            await uow.disks.note_use(disk_id, used, begun)
    if errors:
        raise errors[0]


async def _forget(uow_factory: UnitOfWorkFactory, clock: Clock, disk: DiskRecord) -> None:
    async with uow_factory() as uow:
        user = await uow.disks.remove(disk.id)
        if user is not None:
            await uow.events.append(
                actor=_SYSTEM,
                kind=PeopleEventKind.DISK_REMOVED,
                at=clock.now(),
                subject=f"user:{user}",
                data={"user": user, "disk": disk.id, "name": disk.name, "size": disk.size_bytes},
            )

"""Bring the cluster's disks to what the rows say: made, resized, removed; and take them from jobs that have ended.

A row is stored before the cluster makes anything for it, and removed after the cluster has removed all of it. So a
process that is killed at any moment leaves work for the next look, and nothing that no row knows.
"""

from dataclasses import dataclass
from datetime import timedelta
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
    """Deleted disks are kept for `kept`; disks in use are measured every `measured_every`."""

    kept: timedelta
    measured_every: timedelta = timedelta(minutes=1)


async def settle_disks(uow_factory: UnitOfWorkFactory, store: DiskStore, clock: Clock, rules: DiskRules) -> int:
    """Settle some disks; returns how many were made, resized or removed.

    Raises ClusterUnavailableError when the store does not answer.
    """
    deleted_before = clock.now() - rules.kept
    async with uow_factory(one_statement=True) as uow:
        await uow.disks.end_uses(_BATCH)
        due = await uow.disks.to_settle(deleted_before, _BATCH)
    settled = 0
    for disk in due:
        step = DiskStep.REMOVE if disk.state is DiskState.DELETED else next_step(disk.state)
        match step:
            case DiskStep.MAKE:
                settled += await _make(uow_factory, store, disk)
            case DiskStep.REMOVE:
                async with uow_factory(one_statement=True) as uow:
                    is_to_go = await uow.disks.begin_removal(disk.id, deleted_before)
                if is_to_go:
                    await store.remove(disk.id)
                    await _forget(uow_factory, clock, disk)
                    settled += 1
            case None:
                pass
    return settled


async def measure_disks(uow_factory: UnitOfWorkFactory, store: DiskStore, clock: Clock, rules: DiskRules) -> None:
    """Measure disks that jobs write to, and those that a job has had since they were measured."""
    now = clock.now()
    async with uow_factory(one_statement=True) as uow:
        due = await uow.disks.to_measure(now - rules.measured_every, _BATCH)
    for disk_id in due:
        used = await store.used_bytes(disk_id)
        async with uow_factory(one_statement=True) as uow:
            await uow.disks.note_use(disk_id, used, clock.now())


async def _make(uow_factory: UnitOfWorkFactory, store: DiskStore, disk: DiskRecord) -> bool:
    try:
        await store.make(disk.id, disk.size_bytes)
    except DiskRefusedError as refusal:
        async with uow_factory(one_statement=True) as uow:
            await uow.disks.note_problem(disk.id, str(refusal))
        return False
    async with uow_factory(one_statement=True) as uow:
        await uow.disks.note_made(disk.id, disk.size_bytes)
    return True


async def _forget(uow_factory: UnitOfWorkFactory, clock: Clock, disk: DiskRecord) -> None:
    async with uow_factory() as uow:
        if await uow.disks.remove(disk.id):
            await uow.events.append(
                actor=_SYSTEM,
                kind=PeopleEventKind.DISK_REMOVED,
                at=clock.now(),
                data={"disk": disk.id, "name": disk.name, "size": disk.size_bytes},
            )

"""Make snapshots and clones in the cluster, one after the other. A copy of much takes long; all else goes on meanwhile.

A request is stored before anything is made, and a copy counts only once it is complete: a process that is killed leaves
a copy that the next look begins anew.
"""

from collections.abc import Collection
from datetime import datetime

from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.ports.clock import Clock
from reservation_core.ports.disks.disks import DiskCopy, DiskRefusedError, DiskStore
from reservation_core.usecases.disks.settle_disks import DiskRules


class Copying:
    """What this process copies now: it is not removed meanwhile, so that nothing is made of what nobody knows."""

    def __init__(self) -> None:
        self._targets = set[str]()

    @property
    def targets(self) -> Collection[str]:
        """The copies of this moment, at every look: one may begin while disks are settled."""
        return self._targets

    async def copy_next(self, uow_factory: UnitOfWorkFactory, store: DiskStore, clock: Clock, rules: DiskRules) -> bool:
        """Make the next copy, if one is due. Raises what the store raises; that copy then rests."""
        copy = await _due(uow_factory, clock.now() - rules.rest)
        if copy is None:
            return False
        self._targets.add(copy.target_id)
        try:
            # Deleted before this look, it is gone; later, and it is removed afterwards.
            if await _due(uow_factory, clock.now() - rules.rest) == copy:
                await _copy(uow_factory, store, clock, rules, copy)
        finally:
            self._targets.clear()
        return True


async def _due(uow_factory: UnitOfWorkFactory, failed_before: datetime) -> DiskCopy | None:
    async with uow_factory(one_statement=True) as uow:
        copies = await uow.snapshots.copies_to_make(failed_before, 1)
    return copies[0] if copies else None


async def _copy(
    uow_factory: UnitOfWorkFactory, store: DiskStore, clock: Clock, rules: DiskRules, copy: DiskCopy
) -> None:
    try:
        is_made = await store.copy(copy)
    except Exception as error:
        problem = str(error) if isinstance(error, DiskRefusedError) else None
        await _note_rest(uow_factory, copy, problem, clock.now())
        if problem is None:
            raise
    else:
        if is_made:
            async with uow_factory() as uow:
                await uow.snapshots.note_copied(copy)
        else:
            async with uow_factory(one_statement=True) as uow:
                await uow.snapshots.note_begun(copy, clock.now() - rules.rest + rules.pending_rest)


async def _note_rest(uow_factory: UnitOfWorkFactory, copy: DiskCopy, problem: str | None, at: datetime) -> None:
    async with uow_factory(one_statement=True) as uow:
        if copy.clone_id is None:
            await uow.snapshots.note_failure(copy.target_id, problem, at)
        else:
            await uow.disks.note_failure(copy.clone_id, problem, at)

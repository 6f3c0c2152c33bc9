"""Make snapshots and clones in the cluster, one after the other. A copy of much takes long; all else goes on meanwhile.

A request is stored before anything is made, and a copy counts only once it is complete: a process that is killed leaves
a copy that the next look begins anew.
"""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final

from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.domain.changes import StartDelayed
from reservation_core.domain.disks.disk_life import UNCOPIED
from reservation_core.domain.jobs.lifecycle import decide
from reservation_core.domain.model import Reason
from reservation_core.domain.statuses import ReasonCode
from reservation_core.ports.clock import Clock
from reservation_core.ports.disks.disks import DiskCopy, DiskDelayedError, DiskRefusedError, DiskStore
from reservation_core.usecases.carry_out import carry_out
from reservation_core.usecases.disks.settle_disks import DiskRules

_MOST_RESTS: Final = 1000


class Copying:
    """What this process copies now: it is not removed meanwhile, so that nothing is made of what nobody knows."""

    def __init__(self) -> None:
        self._targets = set[str]()
        self._rests = dict[str, timedelta]()

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
                rest = self._rests.pop(copy.target_id, rules.rest)
                if await _copy(uow_factory, store, clock, rules, copy, rest):
                    self._rests[copy.target_id] = min(2 * rest, rules.longest_rest)
                    if len(self._rests) > _MOST_RESTS:  # some were deleted
                        del self._rests[next(iter(self._rests))]
        finally:
            self._targets.clear()
        return True


async def _due(uow_factory: UnitOfWorkFactory, failed_before: datetime) -> DiskCopy | None:
    async with uow_factory(one_statement=True) as uow:
        copies = await uow.snapshots.copies_to_make(failed_before, 1)
    return copies[0] if copies else None


async def _copy(
    uow_factory: UnitOfWorkFactory, store: DiskStore, clock: Clock, rules: DiskRules, copy: DiskCopy, rest: timedelta
) -> bool:
    """Make a copy; whether it was refused, and rests for `rest`."""
    try:
        made_bytes = await store.copy(copy)
    except Exception as error:
        problem = str(error) if isinstance(error, DiskRefusedError) else None
        if problem is None:
            await _note_rest(uow_factory, copy, None, clock.now())
            raise
        is_tried_on = isinstance(error, DiskDelayedError)
        rest = rules.rest if is_tried_on else rest
        jobs = await _note_rest(uow_factory, copy, problem, clock.now() - rules.rest + rest)
        await _delay_jobs(uow_factory, jobs, f"It waits for {copy.target}. {problem}", clock.now())
        return not is_tried_on
    if made_bytes is not None:
        async with uow_factory() as uow:
            await uow.snapshots.note_copied(copy, made_bytes)
    elif copy.deleted_at is not None:
        await _note_rest(uow_factory, copy, UNCOPIED, clock.now())
    else:
        async with uow_factory(one_statement=True) as uow:
            await uow.snapshots.note_begun(copy, clock.now() - rules.rest + rules.pending_rest)
    return False


async def _note_rest(uow_factory: UnitOfWorkFactory, copy: DiskCopy, problem: str | None, at: datetime) -> list[str]:
    """Note that a copy is not made yet; the jobs that have it."""
    async with uow_factory(one_statement=True) as uow:
        if copy.clone_id is None:
            await uow.snapshots.note_failure(copy.target_id, problem, at)
            return []
        return await uow.snapshots.note_clone_failure(copy, problem, at)


async def _delay_jobs(uow_factory: UnitOfWorkFactory, jobs: Collection[str], why: str, now: datetime) -> None:
    """Let jobs whose pods wait for a clone say why."""
    if not jobs:
        return
    delay = StartDelayed(Reason(ReasonCode.UNSCHEDULABLE, why))
    async with uow_factory() as uow:
        rows = await uow.reservations.lock(sorted(jobs))
        await carry_out(uow, [change for row in rows.values() if (change := decide(row, delay, now)) is not None])

"""Signals before ends, and preemptible jobs: those whose GPUs others need are asked for them, the others keep them.

Level-triggered: the next run makes up for a missed one. Ends go through rows under their locks, so that several
processes may look at once. The range of a preemptible job in the ledger is only as long as it keeps its GPUs for sure;
whoever plans finds them free afterwards. While nobody has them next, the range is renewed from time to time.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.changes import Event, GpusNeeded, SignalDue
from reservation_core.domain.jobs.lifecycle import decide
from reservation_core.domain.jobs.preemption import RENEWED_EVERY, needs_of
from reservation_core.ports.clock import Clock
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.carry_out import carry_out

_BATCH = 500


@dataclass(frozen=True, slots=True)
class PreemptionReport:
    """How many jobs got their signal, were asked for their GPUs or ended for that, and keep them a while longer."""

    signalled: int
    asked: int
    renewed: int

    def __bool__(self) -> bool:
        return bool(self.signalled or self.asked)


async def preempt(uow_factory: UnitOfWorkFactory, clock: Clock, turnaround: timedelta) -> PreemptionReport:
    """Signal, ask and renew once. Pods may need `turnaround` to end."""
    needs = needs_of(turnaround)
    async with uow_factory(one_statement=True) as uow:
        if not await uow.leases.any_due(clock.now()):
            return PreemptionReport(0, 0, 0)

    async def signals_due(uow: UnitOfWork, now: datetime) -> list[str]:
        return await uow.leases.signals_due(now, _BATCH)

    async def needed(uow: UnitOfWork, now: datetime) -> list[str]:
        return await uow.leases.needed(now, needs, _BATCH)

    signalled = await _decide_all(uow_factory, clock, signals_due, SignalDue())
    asked = await _decide_all(uow_factory, clock, needed, GpusNeeded())
    renewed = 0
    while True:
        async with uow_factory() as uow:
            some = await uow.leases.renew(clock.now(), needs, RENEWED_EVERY, turnaround, _BATCH)
            if some:
                uow.wake(Channel.GPU_JOBS)
        renewed += some
        if some < _BATCH:
            return PreemptionReport(signalled, asked, renewed)


async def _decide_all(
    uow_factory: UnitOfWorkFactory,
    clock: Clock,
    find: Callable[[UnitOfWork, datetime], Awaitable[list[str]]],
    event: Event,
) -> int:
    done = 0
    while True:
        async with uow_factory() as uow:
            ids = await find(uow, clock.now())
            rows = await uow.reservations.lock(ids) if ids else {}
            decided = [decide(row, event, clock.now()) for row in rows.values()]
            changes = [change for change in decided if change is not None]
            await carry_out(uow, changes)
        done += len(changes)
        if len(ids) < _BATCH or not changes:
            return done

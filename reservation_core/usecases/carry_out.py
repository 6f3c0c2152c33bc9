"""Write transitions of jobs, and wake the processes that have work from them."""

from collections.abc import Sequence

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.changes import DecidedChange, DeletePods, MoveDeadline, SignalPods, WakePlanner
from reservation_core.ports.wakeups import Channel


async def carry_out(uow: UnitOfWork, changes: Sequence[DecidedChange]) -> None:
    """Write changes with their effects; listeners are woken after commit."""
    if not changes:
        return
    await uow.reservations.apply(changes)
    uow.wake(Channel.EVENTS)
    effects = [effect for change in changes for effect in change.effects]
    if any(isinstance(effect, WakePlanner) for effect in effects):
        uow.wake(Channel.GPU_JOBS)
    if any(isinstance(effect, DeletePods | MoveDeadline | SignalPods) for effect in effects):
        uow.wake(Channel.POD_OPERATIONS)

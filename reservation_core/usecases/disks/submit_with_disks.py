"""Storing a job that has disks from then on: a job that can't have them is not stored."""

from dataclasses import replace
from datetime import datetime

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.errors import DiskInUseError
from reservation_core.ports.jobs.reservations import NewReservation, Submitted
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.disks.disks import find_disks
from reservation_core.usecases.jobs.dependencies import store_dependent
from reservation_core.usecases.repeat_lost_transactions import repeat_lost


async def submit_with_disks(
    uow_factory: UnitOfWorkFactory, principal: Principal, new: NewReservation, now: datetime
) -> Submitted:
    """Store one job and give it its disks, until it ends.

    Raises UnknownDiskError, DiskInUseError, LimitExceededError, and what storing jobs that wait for others raises.
    """
    job = new.reservation

    async def store() -> Submitted:
        async with uow_factory() as uow:
            try:
                disks = await find_disks(uow, principal.user_id, job.workload.disks, runs=bool(job.workload.command))
            except DiskInUseError:
                # Perhaps by the job of the same request, which was sent twice.
                if (first := await _first_answer(uow, principal, new)) is None:
                    raise
                return Submitted(job.id, replayed_answer=first)
            workload = replace(job.workload, disks=disks)
            stored = await store_dependent(
                uow, principal, replace(new, reservation=replace(job, workload=workload)), now
            )
            if stored.is_stored:
                await uow.disks.use(job.id, disks, now)
                uow.wake(Channel.GPU_JOBS)
        return stored

    return await repeat_lost(store)


async def _first_answer(uow: UnitOfWork, principal: Principal, new: NewReservation) -> bytes | None:
    """The answer that the request has had before; None where it was not sent before."""
    if new.idempotency_key is None or new.request_hash is None:
        return None
    first = await uow.idempotency.answer(principal.user_id, new.idempotency_key, new.request_hash)
    return None if first is None else first.body

"""Cancelling a job on behalf of its owner or an administrator."""

from datetime import datetime

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.changes import CancelRequested
from reservation_core.domain.jobs.lifecycle import decide
from reservation_core.ports.jobs.reservations import JobView
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.carry_out import carry_out
from reservation_core.usecases.jobs.arrays import end_elements
from reservation_core.usecases.jobs.visible_jobs import lock_owned, view_visible


async def cancel(
    uow: UnitOfWork, principal: Principal, job_id: str, expected_version: int | None, now: datetime
) -> JobView:
    """Cancel at once while it waits, or bring its end about while it holds GPUs.

    Raises NotFoundError, StaleVersionError, AlreadyFinalError.
    """
    reservation = await lock_owned(uow, principal, job_id, expected_version)
    by_admin = reservation.user_id != principal.user_id
    change = decide(reservation, CancelRequested(principal.user, by_admin), now)
    if change is not None:
        await carry_out(uow, [change])
        if reservation.array is not None:
            await end_elements(uow, job_id, now)
    return await view_visible(uow, principal, job_id)

"""Keeping a job whose GPUs are idle, on behalf of its owner or an administrator."""

from datetime import datetime

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.changes import KeepRequested
from reservation_core.domain.jobs.lifecycle import decide
from reservation_core.ports.jobs.reservations import JobView
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.carry_out import carry_out
from reservation_core.usecases.jobs.visible_jobs import lock_owned, view_visible


async def keep(
    uow: UnitOfWork, principal: Principal, job_id: str, expected_version: int | None, now: datetime
) -> JobView:
    """Take back the warning that a job's GPUs are idle; the next one comes after another window at the earliest.

    Raises NotFoundError, ForbiddenError, StaleVersionError, NotIdleError without a warning.
    """
    reservation = await lock_owned(uow, principal, job_id, expected_version)
    change = decide(reservation, KeepRequested(principal.user), now)
    if change is not None:
        await carry_out(uow, [change])
    return await view_visible(uow, principal, job_id)

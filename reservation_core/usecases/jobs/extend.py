"""Extending a job on behalf of its owner or an administrator."""

from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.changes import ExtendRequested
from reservation_core.domain.jobs.lifecycle import decide
from reservation_core.ports.jobs.reservations import JobView
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.carry_out import carry_out
from reservation_core.usecases.jobs.dependencies import promise_dependants_anew
from reservation_core.usecases.jobs.permit import lock_owner, permit_extension
from reservation_core.usecases.jobs.visible_jobs import lock_owned, view_visible
from reservation_core.usecases.spend_budgets import ask_of, spend


async def extend(
    uow: UnitOfWork,
    principal: Principal,
    job_id: str,
    by: timedelta,
    expected_version: int | None,
    longest: timedelta,
    now: datetime,
) -> JobView:
    """Let a job last longer by `by`, up to `longest` in all.

    Raises NotFoundError, StaleVersionError, AlreadyFinalError, NotExtendableError, LimitExceededError,
    NotPermittedError when the policy or the token's budget says no, or CalendarConflictError when its GPUs are promised
    to somebody else by then.
    """
    await lock_owner(uow, job_id)
    reservation = await lock_owned(uow, principal, job_id, expected_version)
    by_itself = principal.token_id == f"job:{job_id}"
    change = decide(reservation, ExtendRequested(principal.user, by, longest, by_itself), now)
    if change is not None:
        await permit_extension(uow, reservation, by, now)
        # Before, as their slots may be on its own GPUs.
        await promise_dependants_anew(uow, change)
        await carry_out(uow, [change])
        await spend(uow, principal, [ask_of(change.after, reservation.duration)], now)
    return await view_visible(uow, principal, job_id)

"""Sharing a job: others enter it and look at it, and change nothing of it."""

from datetime import datetime

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.errors import ForbiddenError, NotFoundError, NotShareableError, UserDisabledError
from reservation_core.ports.jobs.reservations import JobView
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.sessions.shares import ShareUser
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.jobs.visible_jobs import lock_owned, view_visible

MOST_USERS = 100
"""The most users that one job is shared with."""


async def share(uow: UnitOfWork, principal: Principal, job_id: str, user: str, now: datetime) -> JobView:
    """Share the caller's job with a user; a repetition changes nothing.

    Raises NotFoundError, ForbiddenError for another user's job, UserDisabledError, NotShareableError and
    LimitExceededError.
    """
    other = await _locked_user(uow, user)
    job = await lock_owned(uow, principal, job_id, None)
    if job.user_id != principal.user_id:
        raise ForbiddenError(f"Only {job.user} may share {job_id}: administrators don't let people into others' jobs.")
    if other.id == job.user_id:
        raise NotShareableError(f"{job_id} is your own job. Share it with another user.")
    if other.disabled:
        raise UserDisabledError(f"User {user!r} is disabled and can't enter a job. Share it with another user.")
    await uow.shares.add(job, other, principal.user, most=MOST_USERS, now=now)
    uow.wake(Channel.EVENTS)
    return await view_visible(uow, principal, job_id)


async def unshare(uow: UnitOfWork, principal: Principal, job_id: str, user: str, now: datetime) -> JobView:
    """End a share, on behalf of the job's owner or an administrator. Raises NotFoundError and ForbiddenError."""
    other = await _locked_user(uow, user)
    job = await lock_owned(uow, principal, job_id, None)
    if not await uow.shares.remove(job, other, principal.user, now):
        raise NotFoundError(
            f"{job_id} is not shared with {user!r}. `gpu-dev show {job_id}` shows the users it is shared with."
        )
    uow.wake(Channel.EVENTS)
    return await view_visible(uow, principal, job_id)


async def _locked_user(uow: UnitOfWork, name: str) -> ShareUser:
    user = await uow.shares.lock_user(name)
    if user is None:
        raise NotFoundError(f"There is no user {name!r}. Ask the person for the user name.")
    return user

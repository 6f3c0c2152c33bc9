"""Finding a job on behalf of a user: those that are neither the user's own nor shared do not exist for the user."""

from dataclasses import replace

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.errors import ForbiddenError, NotChangeableError, NotFoundError, StaleVersionError
from reservation_core.domain.jobs.arrays import unmade_element
from reservation_core.domain.model import Reservation
from reservation_core.domain.request_terms import array_of
from reservation_core.ports.jobs.reservations import JobView
from reservation_core.ports.people.identities import Principal


def visible_user(principal: Principal) -> int | None:
    """The user whose reservations a caller sees: the caller, or None for everybody's."""
    return None if principal.is_admin else principal.user_id


def no_such_job(job_id: str) -> NotFoundError:
    """The same words whether the job never was or belongs to somebody else."""
    return NotFoundError(f"You have no job {job_id}. `gpu-dev list` shows your jobs.")


async def lock_owned(uow: UnitOfWork, principal: Principal, job_id: str, expected_version: int | None) -> Reservation:
    """Lock a reservation to change it.

    Raises NotFoundError when it is not the caller's, ForbiddenError when it is only shared with the caller,
    StaleVersionError when it has changed since it was read, and NotChangeableError for an element before the queue.
    """
    reservation = (await uow.reservations.lock([job_id])).get(job_id)
    if reservation is None and await _unmade(uow, principal, job_id) is not None:
        raise NotChangeableError(f"{job_id} can't be changed before it enters the queue. Cancel its array, or wait.")
    if reservation is None:
        raise no_such_job(job_id)
    if not (principal.is_admin or reservation.user_id == principal.user_id):
        if not await uow.shares.includes(job_id, principal.user_id):
            raise no_such_job(job_id)
        raise ForbiddenError(
            f"{job_id} belongs to {reservation.user}, who shares it with you: you may enter it and look at it. "
            f"Ask {reservation.user} to change it."
        )
    if expected_version is not None and expected_version != reservation.version:
        raise StaleVersionError(
            f"{job_id} has changed: it is at version {reservation.version}, not {expected_version}. "
            "Read it again, then repeat the change."
        )
    return reservation


async def view_visible(uow: UnitOfWork, principal: Principal, job_id: str) -> JobView:
    """Read a job. Raises NotFoundError when it is neither the caller's nor shared with the caller."""
    view = await uow.reservations.view(job_id, visible_user(principal))
    if view is None:
        view = await _unmade(uow, principal, job_id)
    if view is None:
        raise no_such_job(job_id)
    return view


async def _unmade(uow: UnitOfWork, principal: Principal, job_id: str) -> JobView | None:
    """An element that has not entered the queue, from its array; None: there is no such element."""
    named = array_of(job_id)
    array = None if named is None else await uow.reservations.view(named[0], visible_user(principal))
    if array is None or named is None or array.reservation.array is None:
        return None
    state = (await uow.arrays.states([named[0]])).get(named[0])
    if state is None or named[1] >= state.size:
        return None
    if named[1] < state.made:  # made meanwhile, or so old that it was removed
        return await uow.reservations.view(job_id, visible_user(principal))
    return replace(array, reservation=unmade_element(array.reservation, named[1]), counts=None)

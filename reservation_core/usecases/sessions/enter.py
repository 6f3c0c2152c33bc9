"""Enter a running job: only its owner does, and those whom the owner shares it with."""

from dataclasses import dataclass
from datetime import datetime

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.errors import JobNotRunningError, NotFoundError, TooManyConnectionsError
from reservation_core.domain.event_kinds import JobEventKind
from reservation_core.domain.jobs.arrays import element_named
from reservation_core.domain.model import PodName
from reservation_core.domain.request_terms import array_of
from reservation_core.domain.sessions.ways_in import Way, greeting
from reservation_core.domain.statuses import FINAL_STATUSES, JobStatus
from reservation_core.ports.sessions.connections import JobToEnter, NewConnection


@dataclass(frozen=True, slots=True)
class Visitor:
    """A user who enters jobs. `credential`: the id of the token or key; `address`: where the user comes from."""

    user_id: int
    user: str
    credential: str | None
    address: str | None


@dataclass(frozen=True, slots=True)
class Entered:
    """A job that was entered: the pod, and the connection as it was stored. `greeting` is for login shells."""

    connection_id: int
    noted: NewConnection
    pod: PodName
    opened_at: datetime
    greeting: str


async def enter(
    uow: UnitOfWork, visitor: Visitor, reference: str, rank: int, way: Way, most: int, now: datetime
) -> Entered:
    """Note a new connection of a visitor to the job with an id or a name, to its pod of a rank.

    Raises NotFoundError, JobNotRunningError, and TooManyConnectionsError if the user has `most` already.
    """
    job = await find_job_to_enter(uow, reference, visitor.user_id)
    pod = _pod_of(job, rank)
    new = NewConnection(job.id, visitor.user_id, visitor.credential, way, visitor.address)
    await uow.connections.lock_of_user(visitor.user_id)
    opened = await uow.connections.open(new, most, now)
    if opened is None:
        raise TooManyConnectionsError(
            f"You have {most} connections to jobs, the most that one user may have. Close some of them first."
        )
    connection_id, first = opened
    if first:
        await uow.events.append(
            actor=visitor.user, kind=JobEventKind.ENTERED, at=now, subject=job.id, data={"way": way.value}
        )
    said = greeting(job.id, job.name, job.places.get(rank), job.ends_at, folder_goes=job.folder_goes)
    return Entered(connection_id, new, pod, now, said)


async def find_pod_to_enter(uow: UnitOfWork, reference: str, rank: int, user_id: int) -> PodName:
    """The pod of a rank of a running job that a user may enter. Raises NotFoundError and JobNotRunningError."""
    return _pod_of(await find_job_to_enter(uow, reference, user_id), rank)


async def find_job_to_enter(uow: UnitOfWork, reference: str, user_id: int) -> JobToEnter:
    """The running job with an id or a name that a user may enter. Raises NotFoundError and JobNotRunningError."""
    jobs = await uow.connections.jobs_to_enter(reference, user_id)
    if not jobs:
        await _require_made(uow, reference, user_id)
    job = _one(jobs, reference)
    _require_running(job)
    return job


async def _require_made(uow: UnitOfWork, reference: str, user_id: int) -> None:
    """Raises JobNotRunningError for an element of a visible array that has not entered the queue."""
    named = array_of(reference)
    array = None if named is None else await uow.reservations.view(named[0], user_id)
    if named is None or array is None or array.reservation.array is None:
        return
    if named[1] < array.reservation.array.size:
        is_over = array.reservation.status in FINAL_STATUSES
        why = "has never been in the queue, and its array is over" if is_over else "has not entered the queue yet"
        raise JobNotRunningError(f"{reference} {why}. `gpu-dev show {named[0]}` shows how far the array is.")


def _pod_of(job: JobToEnter, rank: int) -> PodName:
    if not 0 <= rank < job.nodes:
        raise NotFoundError(f"{job.id} has no rank {rank}. Its ranks are 0 to {job.nodes - 1}.")
    return PodName(job.id, job.attempt, rank)


def _one(jobs: list[JobToEnter], reference: str) -> JobToEnter:
    if not jobs:
        raise NotFoundError(
            f"You have no job {reference} that you could enter. `gpu-dev list` shows your jobs; you can enter "
            "other users' jobs once their owners share them with you."
        )
    by_id = [job for job in jobs if job.id == reference]
    if by_id:
        return by_id[0]
    # Sharing asks nobody: a job that somebody shares must not stand in the way of one's own.
    jobs = [job for job in jobs if job.own] or jobs
    if len(jobs) > 1:
        ids = ", ".join(job.id for job in jobs)
        raise NotFoundError(f"Several running jobs are named {reference}: {ids}. Use one of these ids.")
    return jobs[0]


def _require_running(job: JobToEnter) -> None:
    if job.elements is not None:
        raise JobNotRunningError(
            f"{job.id} is an array of {job.elements} elements, and you can enter elements that run. "
            f"{element_named(job.id)}"
        )
    if job.status is JobStatus.RUNNING:
        return
    if job.status in FINAL_STATUSES or job.status is JobStatus.ENDING:
        again = f"`gpu-dev submit --again {job.id}` submits it again."
        raise JobNotRunningError(f"{job.id} is over ({job.status.value}). {again}")
    raise JobNotRunningError(f"{job.id} is {job.status.value}. `gpu-dev show {job.id}` says when it starts.")

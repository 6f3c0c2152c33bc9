"""Users of SSH clients: the holders of a key or certificate, and which of them enters a job."""

from collections.abc import Sequence
from dataclasses import dataclass

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.errors import NotFoundError
from reservation_core.domain.sessions.ways_in import split_rank
from reservation_core.usecases.sessions.enter import Visitor


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """A user whom a key or a certificate stands for. `credential`: the id of the key, or of the certificate's token."""

    user_id: int
    user: str
    credential: str


async def choose_pod(uow: UnitOfWork, holders: Sequence[KeyHolder], user_name: str) -> tuple[str, int]:
    """The id or name of a job, and the rank, that an SSH user name such as `box` or `box+1` stands for.

    One's own job of just that name goes before a rank, and a rank before another's job of that name.
    """
    split = split_rank(user_name)
    if split is None:
        return user_name, 0
    jobs = [job for holder in holders for job in await uow.connections.jobs_to_enter(user_name, holder.user_id)]
    if any(job.own for job in jobs):
        return user_name, 0
    for holder in holders:
        if await uow.connections.jobs_to_enter(split[0], holder.user_id):
            return split
    return user_name, 0


async def choose_visitor(
    uow: UnitOfWork, holders: Sequence[KeyHolder], reference: str, address: str | None
) -> tuple[Visitor, str]:
    """The one of a key's holders who may enter the job with this id or name, and the job's id or name.

    Public keys are public: another user may have added the same key, and have a job of the same name. Such a name is
    refused, as the client could end up in another user's job. Raises NotFoundError.
    """
    if len(holders) == 1:
        return _visitor(holders[0], address), reference
    jobs: dict[str, KeyHolder] = {}
    for holder in holders:
        for job in await uow.connections.jobs_to_enter(reference, holder.user_id):
            jobs.setdefault(job.id, holder)
    if reference in jobs:
        return _visitor(jobs[reference], address), reference
    if len(jobs) > 1:
        ids = ", ".join(sorted(jobs))
        raise NotFoundError(f"Several running jobs are named {reference}: {ids}. Use one of these ids.")
    for job_id, holder in jobs.items():
        return _visitor(holder, address), job_id
    return _visitor(holders[0], address), reference


def _visitor(holder: KeyHolder, address: str | None) -> Visitor:
    return Visitor(holder.user_id, holder.user, holder.credential, address)

"""Users of SSH clients: the holders of a key or certificate, and which of them enters a job."""

from collections.abc import Sequence
from dataclasses import dataclass

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.errors import NotFoundError
from reservation_core.usecases.sessions.enter import Visitor


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """A user whom a key or a certificate stands for. `credential`: the id of the key, or of the certificate's token."""

    user_id: int
    user: str
    credential: str


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

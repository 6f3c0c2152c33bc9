"""Tokens of jobs, with which programs inside a job extend it and pass its files."""

from collections.abc import Mapping
from typing import Any

from api_service.access.auth import unauthenticated
from api_service.access.token_pace import TokenPace
from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.domain.errors import ForbiddenError, JobNotRunningError
from reservation_core.domain.sessions.job_tokens import is_job_token, read_job_token
from reservation_core.domain.statuses import LIVE_STATUSES, JobStatus, Role, TokenScope
from reservation_core.ports.clock import Clock
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.sessions.server_keys import job_token_key

_BEARER = "bearer "


def _of_files(job_id: str) -> frozenset[tuple[str, str]]:
    """How a job gets its files, and sends what it keeps."""
    path = f"/v1/jobs/{job_id}"
    return frozenset({
        ("GET", f"{path}/files"), ("GET", f"{path}/files/data"), ("PUT", f"{path}/results"),
        ("PUT", "/v1/uploads"), ("PUT", "/v1/uploads/folders"),
    })  # fmt: skip


class JobTokens:
    """Verifies tokens of jobs. Wrong ones count as wrong tokens of their address."""

    def __init__(self, uow: UnitOfWorkFactory, clock: Clock, pace: TokenPace) -> None:
        self._uow = uow
        self._clock = clock
        self._pace = pace
        self._key: bytes | None = None

    @staticmethod
    def are_meant(header: str | None) -> bool:
        """Whether an Authorization header has a job's token."""
        return header is not None and header[:7].lower() == _BEARER and is_job_token(header[7:].strip())

    async def principal(self, scope: Mapping[str, Any], header: str) -> Principal:
        """The job's owner, who by this token may extend the job and pass its files, and nothing else.

        Raises ProblemError (401, 429), ForbiddenError for any other call, and JobNotRunningError.
        """
        async with self._pace.checking(scope):
            found = read_job_token(await self._load_key(), header[7:].strip())
            if found is None:
                raise unauthenticated("This job token does not belong to this server.")
        job_id, attempt = found
        extends = (scope["method"], scope["path"]) == ("POST", f"/v1/jobs/{job_id}/extend")
        if not extends and (scope["method"], scope["path"]) not in _of_files(job_id):
            raise ForbiddenError(
                f"This is the token of {job_id}: it extends that job and passes its files, and can do nothing else."
            )
        async with self._uow() as uow:
            job = (await uow.reservations.get([job_id])).get(job_id)
            owner = None if job is None else await uow.identities.user(job.user)
        if job is None or owner is None or owner.disabled_at is not None:
            raise unauthenticated(
                "The owner of this job is disabled or the job is unknown, so its token is not accepted."
            )
        in_time = job.status is JobStatus.RUNNING or (not extends and job.status in LIVE_STATUSES)
        if job.attempt != attempt or not in_time:
            raise JobNotRunningError(f"{job_id} no longer runs in the attempt that this token belongs to.")
        if not extends and job.workload.sync is None:
            raise ForbiddenError(f"{job_id} was submitted without files, so its token passes none.")
        scopes = frozenset({TokenScope.SUBMIT} if extends else {TokenScope.READ, TokenScope.SUBMIT})
        return Principal(owner.id, owner.name, Role.USER, f"job:{job_id}", None, scopes=scopes)

    async def _load_key(self) -> bytes:
        if self._key is None:
            async with self._uow() as uow:
                self._key = await job_token_key(uow, self._clock.now())
        return self._key

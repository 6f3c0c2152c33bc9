"""Shares of jobs in PostgreSQL."""

from datetime import datetime

from reservation_core.adapters.postgres.history.events import ReservationEvent, record_events
from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.domain.errors import LimitExceededError
from reservation_core.domain.event_kinds import JobEventKind
from reservation_core.domain.model import Reservation
from reservation_core.ports.sessions.shares import ShareUser


class Shares(StatementRunner):
    """Users that may enter a job and look at it, besides its owner."""

    async def lock_user(self, name: str) -> ShareUser | None:
        """A user, whom nobody disables until the transaction ends. To be locked before the job."""
        row = (await self._run("lock_user_to_share_with", name=name)).one_or_none()
        return None if row is None else ShareUser(row.id, row.name, disabled=row.disabled_at is not None)

    async def add(self, job: Reservation, user: ShareUser, actor: str, *, most: int, now: datetime) -> None:
        """Share a locked job with a locked user; a repetition changes nothing.

        Raises LimitExceededError when it is shared with `most` users already.
        """
        row = (await self._run("add_job_share", id=job.id, user_id=user.id, most=most, now=now)).one()
        if row.added:
            detail = f"{user.name} may enter it and look at it."
            await self._record(job, user, actor, JobEventKind.SHARED, detail, now)
        elif not row.known:
            raise LimitExceededError(f"{job.id} is shared with {most} users already. Stop sharing it with one of them.")

    async def remove(self, job: Reservation, user: ShareUser, actor: str, now: datetime) -> bool:
        """End a share of a locked job; whether there was one."""
        removed = (await self._run("remove_job_share", id=job.id, user_id=user.id)).rowcount == 1
        if removed:
            detail = f"{user.name} may no longer enter it."
            await self._record(job, user, actor, JobEventKind.UNSHARED, detail, now)
        return removed

    async def remove_all(self, user_id: int) -> None:
        """End all shares with a user."""
        await self._run("remove_job_shares_of_user", user_id=user_id)

    async def includes(self, job_id: str, user_id: int) -> bool:
        """Whether a job is shared with a user."""
        return bool((await self._run("job_share", id=job_id, user_id=user_id)).scalar_one())

    async def _record(
        self, job: Reservation, user: ShareUser, actor: str, kind: JobEventKind, detail: str, now: datetime
    ) -> None:
        status, code = job.status.value, job.reason.code.value
        event = ReservationEvent(job.id, now, actor, kind, status, status, code, detail, {"user": user.name})
        await record_events(self._connection, [event])

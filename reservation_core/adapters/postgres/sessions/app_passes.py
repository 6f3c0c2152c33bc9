"""Passes to apps of jobs, in PostgreSQL."""

from datetime import datetime

from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.ports.sessions.app_passes import AppAddress, AppPass, NewTicket


class AppPasses(StatementRunner):
    """Tickets, and the passes that they become. They are found by the digest of their secret."""

    async def add(self, ticket: NewTicket, now: datetime) -> None:
        """Store a ticket; some expired passes are deleted."""
        await self._run(
            "add_app_ticket",
            digest=ticket.digest,
            job_id=ticket.app.job_id,
            port=ticket.app.port,
            user_id=ticket.user_id,
            credential=ticket.credential,
            expires_at=ticket.expires_at,
            now=now,
        )

    async def use(self, ticket: bytes, app: AppAddress, passed: bytes, until: datetime, now: datetime) -> bool:
        """Turn a ticket into a pass; False for one that was used, has expired, or is for another app."""
        rows = await self._run(
            "use_app_ticket", ticket=ticket, job_id=app.job_id, port=app.port, passed=passed, until=until, now=now
        )
        return rows.one_or_none() is not None

    async def find(self, digest: bytes, app: AppAddress, now: datetime) -> AppPass | None:
        """The pass with this digest, if its user and its token are still good."""
        row = (await self._run("app_pass", digest=digest, job_id=app.job_id, port=app.port, now=now)).one_or_none()
        return None if row is None else AppPass(row.user_id, row.user_name, row.token_id)

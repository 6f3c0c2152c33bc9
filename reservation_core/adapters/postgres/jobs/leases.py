"""What becomes of running jobs before their end: signals, and whether preemptible ones keep their GPUs."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection import direct
from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.adapters.postgres.jobs.ledger_constraints import LEDGER_CONSTRAINTS, violates


class LentGpu(NamedTuple):
    """A GPU that a preemptible job has since its start."""

    job_id: str
    gpu_id: int
    started_at: datetime


class Leases:
    """Finds jobs to signal or to ask for their GPUs, and renews the ranges of the other preemptible ones.

    `needs` is how long others have to be promised a GPU ahead, its job's signal apart.
    """

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def any_due(self, now: datetime) -> bool:
        """Whether any job runs that is preemptible, or that gets its signal now."""
        [row] = await direct.fetch(self._connection, "any_terms_due", {"now": now})
        return bool(row["found"])

    async def signals_due(self, now: datetime, limit: int) -> list[str]:
        """Running jobs whose end is so near that they get their signal."""
        found = await self._connection.execute(statement("end_signals_due"), {"now": now, "limit": limit})
        return [row.id for row in found]

    async def needed(self, now: datetime, needs: timedelta, limit: int) -> list[str]:
        """Running preemptible jobs whose time since they were asked is over, or in whose place others are so soon.

        Others need their GPUs within `needs`, or CPUs and memory of their node.
        """
        parameters = {
            "now": now,
            "needs_s": needs.total_seconds(),
            "lacking": await self._lacking(now, needs),
            "limit": limit,
        }
        found = await self._connection.execute(statement("gpus_needed"), parameters)
        return [row.id for row in found]

    async def lent(self, now: datetime, longest_lead: timedelta) -> list[LentGpu]:
        """The GPUs of running preemptible jobs that may be asked for them now, and whose lead is no longer."""
        found = await self._connection.execute(statement("gpus_lent"), {"now": now, "longest_lead": longest_lead})
        return [LentGpu(row.id, row.gpu_id, row.started_at) for row in found]

    async def _lacking(self, now: datetime, needs: timedelta) -> list[str]:
        parameters = {"now": now, "needs_s": needs.total_seconds()}
        return [row.id for row in await self._connection.execute(statement("shares_needed"), parameters)]

    async def renew(
        self, now: datetime, needs: timedelta, renewed_every: timedelta, turnaround: timedelta, limit: int
    ) -> int:
        """Renew the ranges of preemptible jobs in whose place nobody else is next; returns how many."""
        parameters = {
            "now": now,
            "needs_s": needs.total_seconds(),
            "while_s": renewed_every.total_seconds(),
            "turnaround_s": turnaround.total_seconds(),
            "lacking": await self._lacking(now, needs),
            "limit": limit,
        }
        found = await self._connection.execute(statement("leases_due"), parameters)
        untils = {row.id: row.until for row in found}
        if not untils or await self._lengthen(untils):
            return len(untils)
        # Somebody took a GPU in this moment, or a node has less than it had: that bounds only the jobs there.
        return sum([await self._lengthen({job_id: until}) for job_id, until in untils.items()])

    async def _lengthen(self, untils: Mapping[str, datetime]) -> bool:
        """Let these ranges end then; false when the ledger refuses that."""
        parameters = {"ids": list(untils), "untils": list(untils.values())}
        try:
            async with self._connection.begin_nested():
                await self._connection.execute(statement("renew_leases"), parameters)
        except IntegrityError as error:
            if not violates(error, *LEDGER_CONSTRAINTS):
                raise
            return False
        return True

"""What becomes of running jobs before their end: signals, and whether preemptible ones keep their GPUs."""

from datetime import datetime, timedelta

from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement


class Leases:
    """Finds jobs to signal or to ask for their GPUs, and renews the ranges of the other preemptible ones.

    `needs` is how long others have to be promised a GPU ahead, its job's signal apart.
    """

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def signals_due(self, now: datetime, limit: int) -> list[str]:
        """Running jobs whose end is so near that they get their signal."""
        found = await self._connection.execute(statement("end_signals_due"), {"now": now, "limit": limit})
        return [row.id for row in found]

    async def needed(self, now: datetime, needs: timedelta, limit: int) -> list[str]:
        """Running preemptible jobs whose GPUs others need within `needs`, or whose time since then is over."""
        parameters = {"now": now, "needs_s": needs.total_seconds(), "limit": limit}
        found = await self._connection.execute(statement("gpus_needed"), parameters)
        return [row.id for row in found]

    async def renew(
        self, now: datetime, needs: timedelta, renewed_every: timedelta, turnaround: timedelta, limit: int
    ) -> int:
        """Renew the ranges of preemptible jobs whose GPUs nobody else has next; returns how many.

        Renews nothing where somebody took such a GPU in this moment: the next call sees that.
        """
        parameters = {
            "now": now,
            "needs_s": needs.total_seconds(),
            "while_s": renewed_every.total_seconds(),
            "turnaround_s": turnaround.total_seconds(),
            "limit": limit,
        }
        try:
            async with self._connection.begin_nested():
                row = (await self._connection.execute(statement("renew_leases"), parameters)).one()
        except IntegrityError as error:
            if "allocations_calendar" not in str(error.orig):
                raise
            return 0
        return int(row.renewed)

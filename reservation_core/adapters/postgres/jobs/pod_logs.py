"""The last lines of pods, in PostgreSQL."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.domain.model import PodName
from reservation_core.ports.jobs.pod_logs import KeptLog


class PodLogs:
    """Ends of logs, kept for a while after their pods are gone."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def kept(self, pods: Sequence[PodName]) -> dict[PodName, bool]:
        """Of which of these pods something was kept, and whether that is complete."""
        names = {str(pod): pod for pod in pods}
        found = await self._connection.execute(statement("kept_pod_logs"), {"pods": list(names)})
        return {names[row.pod]: row.complete for row in found}

    async def keep(self, logs: Sequence[KeptLog], now: datetime) -> None:
        """Store the ends of logs, in one statement.

        A complete tail is not written again; the beginning of a tail never replaces it, nor does an empty one.
        """
        if not logs:
            return
        await self._connection.execute(
            statement("keep_pod_logs"),
            {
                "pods": [str(log.pod) for log in logs],
                "reservations": [log.pod.reservation_id for log in logs],
                "tails": [log.tail for log in logs],
                "completes": [log.complete for log in logs],
                "now": now,
            },
        )

    async def tail(self, pod: PodName) -> bytes | None:
        """What was kept of one pod's log; None when nothing was, or no longer is."""
        found = await self._connection.scalar(statement("pod_log_tail"), {"pod": str(pod)})
        return None if found is None else bytes(found)

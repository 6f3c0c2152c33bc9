"""Unknown pods in PostgreSQL."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.adapters.postgres.connection.queues import Queue
from reservation_core.contracts.queue_messages import JobMessage
from reservation_core.ports.jobs.unknown_pods import UnknownPod
from reservation_core.ports.queues import QueueName


class UnknownPods:
    """Unknown pods, as long as they exist. What changes cards tells the planner."""

    def __init__(self, connection: AsyncConnection, queue: Queue) -> None:
        self._connection = connection
        self._queue = queue

    async def report(self, pods: Sequence[UnknownPod]) -> list[str]:
        """Write down what is true of these; returns the names that are new. Requests for their end stay."""
        if not pods:
            return []
        found = await self._connection.execute(
            statement("report_unknown_pods"),
            {
                "names": [pod.name for pod in pods],
                "reservation_ids": [pod.reservation_id for pod in pods],
                "nodes": [pod.node for pod in pods],
                "gpu_indices": [json.dumps(pod.gpu_indices) for pod in pods],
                "details": [pod.detail for pod in pods],
                "first_seen_ats": [pod.first_seen_at for pod in pods],
            },
        )
        written = found.all()
        if written:
            await self._tell_planner(())
        return [row.name for row in written if row.is_new]

    async def forget(self, names: Sequence[str]) -> list[str]:
        """They are gone, or accounted for; returns the names that were written down."""
        if not names:
            return []
        found = (await self._connection.execute(statement("forget_unknown_pods"), {"names": list(names)})).all()
        if found:
            # A reservation whose start they stood in the way of is looked at again.
            await self._tell_planner(sorted({row.reservation_id for row in found}))
        return [row.name for row in found]

    async def request_end(self, name: str, by: str, now: datetime) -> UnknownPod | None:
        """Note that somebody wants its end, the first time; None when there is no such pod."""
        found = await self._connection.execute(
            statement("request_end_of_unknown_pod"), {"name": name, "by": by, "now": now}
        )
        row = found.one_or_none()
        return None if row is None else _unknown_pod(row)

    async def cards_for(self, name: str, node: str) -> list[int]:
        """All cards of a node, in the order in which they are counted for a pod that does not say which it holds.

        First those counted for it before: nothing flutters from look to look. Then those that nobody has, then others.
        """
        found = await self._connection.execute(statement("cards_for_unknown_pod"), {"name": name, "node": node})
        return list(found.scalars())

    async def count(self) -> int:
        """How many there are, for metrics."""
        return int((await self._connection.execute(statement("count_unknown_pods"))).scalar_one())

    async def page(self, *, after: str | None, limit: int) -> list[UnknownPod]:
        """By name."""
        found = await self._connection.execute(statement("unknown_pods_page"), {"after": after or "", "limit": limit})
        return [_unknown_pod(row) for row in found]

    async def of(self, reservation_ids: Sequence[str]) -> dict[str, UnknownPod]:
        """Those of these reservations, by name."""
        found = await self._connection.execute(statement("unknown_pods_of"), {"reservation_ids": list(reservation_ids)})
        return {row.name: _unknown_pod(row) for row in found}

    async def _tell_planner(self, ids: Sequence[str]) -> None:
        messages = [
            JobMessage(kind="inventory"),
            *(JobMessage(kind="changed", id=reservation_id) for reservation_id in ids),
        ]
        await self._queue.send(QueueName.GPU_JOBS, [message.model_dump() for message in messages])


def _unknown_pod(row: Row[Any]) -> UnknownPod:
    return UnknownPod(
        name=row.name,
        reservation_id=row.reservation_id,
        node=row.node,
        gpu_indices=None if row.gpu_indices is None else tuple(row.gpu_indices),
        detail=row.detail,
        first_seen_at=row.first_seen_at,
        end_requested_at=row.end_requested_at,
        end_requested_by=row.end_requested_by,
    )

"""The queues, through the `pgmq` package's SQLAlchemy client and always inside a given transaction."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pgmq.sqlalchemy_async_queue import PGMQueue
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from reservation_core.adapters.postgres.connection import direct
from reservation_core.ports.queues import DeadLetter, QueuedMessage, QueueMetrics, QueueName

_ERROR_LIMIT = 4000


async def open_client(engine: AsyncEngine) -> PGMQueue:
    """The package's client on our engine; it installs nothing and keeps no connection of its own."""
    client = PGMQueue(engine=engine, init_extension=False)
    await client.init()
    return client


def message_of(row: Mapping[str, Any]) -> QueuedMessage:
    """A delivery; the row has the body as text."""
    return QueuedMessage(row["msg_id"], row["read_ct"], row["enqueued_at"], _body_of(row["body"]))


def _body_of(written: str | None) -> Any:
    """What a body holds; the text itself where Python can't read it, which no queue takes for a message."""
    try:
        return None if written is None else json.loads(written)
    except (ValueError, RecursionError):
        return written


class Queue:
    """PGMQ inside the transaction of the unit of work it hangs on."""

    def __init__(self, client: PGMQueue, connection: AsyncConnection) -> None:
        self._client = client
        self._connection = connection

    async def send(self, queue: QueueName, bodies: Sequence[dict[str, Any]]) -> None:
        """Send all in one statement."""
        if bodies:
            await self._client.send_batch(queue.value, list(bodies), conn=self._connection)

    async def read(self, queue: QueueName, *, visibility: timedelta, limit: int) -> list[QueuedMessage]:
        """Take up to `limit` visible messages and hide them for `visibility` (whole seconds)."""
        seconds = max(1, round(visibility.total_seconds()))
        # Not through the client: consumers read before all that they do, and somebody waits for it.
        parameters = {"queue": queue.value, "hidden_s": seconds, "limit": limit}
        found = await direct.fetch(self._connection, "read_messages", parameters)
        return [message_of(row) for row in found]

    async def delete(self, queue: QueueName, ids: Sequence[int]) -> None:
        """Forget handled messages; unknown ids are nothing."""
        if ids:
            # Every message comes by here; the client's own way takes as long as a plan of several jobs.
            await direct.fetch(self._connection, "delete_messages", {"queue": queue.value, "ids": list(ids)})

    async def postpone(self, queue: QueueName, ids: Sequence[int], by: timedelta) -> None:
        """Make messages visible again only after `by` (whole seconds)."""
        if ids:
            await self._connection.execute(
                text("SELECT pgmq.set_vt(CAST(:queue AS text), CAST(:ids AS bigint[]), CAST(:vt AS integer))"),
                {"queue": queue.value, "ids": list(ids), "vt": round(by.total_seconds())},
            )

    async def put_off(self, queue: QueueName, message_id: int, by: timedelta) -> None:
        """Count a delivery of a message that was read without being hidden, and hide it for `by`."""
        await self._connection.execute(
            text(
                f"UPDATE pgmq.q_{queue.value} SET read_ct = read_ct + 1, vt = clock_timestamp() + :by "  # noqa: S608 - a name from our enum
                "WHERE msg_id = :id"
            ),
            {"id": message_id, "by": by},
        )

    async def unread(self, queue: QueueName, ids: Sequence[int]) -> None:
        """Count one delivery of each less: what happened was nobody's fault. They stay hidden as they were."""
        if ids:
            await self._connection.execute(
                text(
                    f"UPDATE pgmq.q_{queue.value} SET read_ct = read_ct - 1 "  # noqa: S608 - a name from our enum
                    "WHERE msg_id = ANY(CAST(:ids AS bigint[])) AND read_ct > 0"
                ),
                {"ids": list(ids)},
            )

    async def bury(self, queue: QueueName, message: QueuedMessage, error: str) -> None:
        """Move a message, with its error, to the dead-letter queue; nothing if somebody else has taken it away."""
        headers = {
            "error": error.replace("\x00", "")[:_ERROR_LIMIT],
            "read_count": message.read_count,
            "original_id": message.id,
            "enqueued_at": message.enqueued_at.isoformat(),
        }
        # Not through Python: a dead letter must be what it was, whatever JSON that is.
        await self._connection.execute(
            text(
                f"WITH gone AS (DELETE FROM pgmq.q_{queue.value} WHERE msg_id = :id RETURNING message) "  # noqa: S608 - a name from our enum
                "SELECT pgmq.send(CAST(:to AS text), coalesce(message, 'null'), CAST(:headers AS jsonb)) FROM gone"
            ),
            {"id": message.id, "to": queue.dead_letters, "headers": json.dumps(headers)},
        )

    async def dead_letters(self, queue: QueueName, limit: int) -> list[DeadLetter]:
        """The oldest dead letters, without taking them."""
        rows = await self._connection.execute(
            text(
                "SELECT msg_id, enqueued_at, CAST(message AS text) AS body, headers FROM pgmq."  # noqa: S608 - our enum's
                f"q_{queue.dead_letters} ORDER BY msg_id LIMIT :limit"
            ),
            {"limit": limit},
        )
        return [
            DeadLetter(
                id=row.msg_id,
                queue=queue.value,
                enqueued_at=row.enqueued_at,
                body=_body_of(row.body),
                error=str((row.headers or {}).get("error", "no error was recorded")),
                read_count=int((row.headers or {}).get("read_count", 0)),
                original_id=(row.headers or {}).get("original_id"),
            )
            for row in rows
        ]

    async def forget_dead_letters(self, queue: QueueName, before: datetime, limit: int) -> int:
        """Delete those of the `limit` oldest dead letters that were buried before a time; returns how many."""
        result = await self._connection.execute(
            text(
                f"""
                WITH oldest AS (
                    SELECT msg_id, enqueued_at FROM pgmq.q_{queue.dead_letters} ORDER BY msg_id LIMIT :limit
                )
                DELETE FROM pgmq.q_{queue.dead_letters}
                WHERE msg_id = ANY(ARRAY(SELECT msg_id FROM oldest WHERE enqueued_at < :before))
                """  # noqa: S608 - a name from our enum
            ),
            {"before": before, "limit": limit},
        )
        return result.rowcount

    async def oldest_dead_letter(self) -> datetime | None:
        """When the oldest dead letter of any queue was buried."""
        firsts = [
            f"(SELECT enqueued_at FROM pgmq.q_{queue.dead_letters} ORDER BY msg_id LIMIT 1)"  # noqa: S608 - an enum's
            for queue in QueueName
        ]
        found = await self._connection.execute(text(f"SELECT least({', '.join(firsts)})"))
        oldest: datetime | None = found.scalar_one()
        return oldest

    async def redrive(self, queue: QueueName, ids: Sequence[int] | None) -> int:
        """Send dead letters (all when `ids` is None) to their queue again, in one statement; returns how many."""
        result = await self._connection.execute(
            text(
                f"""
                WITH taken AS (
                    DELETE FROM pgmq.q_{queue.dead_letters}
                    WHERE CAST(:ids AS bigint[]) IS NULL OR msg_id = ANY(CAST(:ids AS bigint[]))
                    RETURNING msg_id, message
                ), sent AS (
                    SELECT pgmq.send_batch(CAST(:queue AS text), array_agg(message ORDER BY msg_id))
                    FROM taken HAVING count(*) > 0
                )
                SELECT (SELECT count(*) FROM taken), (SELECT count(*) FROM sent)
                """  # noqa: S608 - a name from our enum
            ),
            {"queue": queue.value, "ids": None if ids is None else list(ids)},
        )
        return int(result.one()[0])

    async def metrics(self) -> list[QueueMetrics]:
        """Depth and age of every queue, dead letters too."""
        ours = {name for queue in QueueName for name in (queue.value, queue.dead_letters)}
        return [
            QueueMetrics(m.queue_name, m.queue_length, m.oldest_msg_age_sec)
            for m in await self._client.metrics_all(conn=self._connection)
            if m.queue_name in ours
        ]

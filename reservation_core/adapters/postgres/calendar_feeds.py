"""Private calendar addresses in PostgreSQL: digests only."""

from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.queries import statement


class PostgresCalendarFeeds:
    """See ports.bookings.CalendarFeeds."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def put(self, user_id: int, digest: bytes, now: datetime) -> None:
        """Make or replace."""
        await self._connection.execute(statement("put_feed"), {"user_id": user_id, "digest": digest, "now": now})

    async def remove(self, user_id: int) -> bool:
        """False when there was none."""
        return (await self._connection.execute(statement("remove_feed"), {"user_id": user_id})).rowcount == 1

    async def owner(self, digest: bytes) -> tuple[int, str, bytes] | None:
        """Whose it is."""
        row = (await self._connection.execute(statement("feed_owner"), {"digest": digest})).one_or_none()
        return None if row is None else (row.id, row.name, bytes(row.digest))

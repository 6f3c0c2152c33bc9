"""Private calendar addresses in PostgreSQL: digests only."""

from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.ports.bookings.bookings import FeedOwner


class CalendarFeeds:
    """The private addresses of people's calendars."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def put(self, user_id: int, digest: bytes, now: datetime, made_with: str) -> None:
        """Make or replace a user's feed. It ends with the token `made_with`."""
        values = {"user_id": user_id, "digest": digest, "now": now, "made_with": made_with}
        await self._connection.execute(statement("put_feed"), values)

    async def remove(self, user_id: int) -> bool:
        """False when there was none."""
        return (await self._connection.execute(statement("remove_feed"), {"user_id": user_id})).rowcount == 1

    async def owner(self, digest: bytes, now: datetime) -> FeedOwner | None:
        """The owner of this feed; None for nobody's, disabled users', and where the token that made it has ended."""
        row = (await self._connection.execute(statement("feed_owner"), {"digest": digest, "now": now})).one_or_none()
        return None if row is None else FeedOwner(row.id, row.name, row.made_with, bytes(row.digest))

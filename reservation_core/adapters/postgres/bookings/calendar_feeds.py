"""Private calendar addresses in PostgreSQL, stored as digests."""

from datetime import datetime

from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.ports.bookings.bookings import FeedOwner


class CalendarFeeds(StatementRunner):
    """The private addresses of users' calendars."""

    async def replace(self, user_id: int, digest: bytes, now: datetime, made_with: str) -> None:
        """Create or replace a user's feed. It ends with the token `made_with`."""
        values = {"user_id": user_id, "digest": digest, "now": now, "made_with": made_with}
        await self._run("put_feed", **values)

    async def remove(self, user_id: int) -> bool:
        """Whether there was a feed."""
        return (await self._run("remove_feed", user_id=user_id)).rowcount == 1

    async def owner(self, digest: bytes, now: datetime) -> FeedOwner | None:
        """The owner of a feed; None for unknown feeds, disabled users, and after the end of the feed's token."""
        row = (await self._run("feed_owner", digest=digest, now=now)).one_or_none()
        return None if row is None else FeedOwner(row.id, row.name, row.made_with, bytes(row.digest))

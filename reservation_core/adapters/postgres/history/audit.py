"""Searching the record in PostgreSQL, by time or for what is about one thing: by an index, so many lines at a time."""

from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.ports.history.audit import EventFilter, EventPage, Place, RecordedEvent

LOOKED_AT = 10_000
"""How many lines one search looks at: some 5 ms and 500 pages of the table. A cursor goes on from there."""

LOOKED_AT_OF_ONE = 1_000
"""The same of a search for what is about one thing: each line may lie in a page of its own."""


class Audit:
    """The record as its readers search it."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def newest_first(self, which: EventFilter, *, before: Place | None, limit: int) -> EventPage:
        """At most `limit` before a place.

        A page may be short, or empty, and go on: only so many lines are looked at.
        """
        span: dict[str, Any] = {
            "from": which.from_,
            "to": which.to,
            "before_at": None if before is None else before[0],
            "before_id": None if before is None else before[1],
        }
        asked = {
            "kinds": None if which.kinds is None else sorted(which.kinds),
            "actor": which.actor,
            "limit": limit + 1,
        }
        if which.subject is not None:
            query, oldest_query = "events_of_subject", "oldest_event_of_subject_looked_at"
            span |= {"subject": which.subject, "scanned": LOOKED_AT_OF_ONE}
        else:
            query, oldest_query = "events_newest_first", "oldest_event_looked_at"
            span |= {"scanned": LOOKED_AT}
        found = await self._connection.execute(statement(query), span | asked)
        events = [_recorded(row) for row in found]
        if len(events) > limit:
            return EventPage(tuple(events[:limit]), _place(events[limit - 1]))
        oldest = await self._oldest_looked_at(oldest_query, span)
        if oldest is not None and events:
            # What was recorded between the two statements moves the second: nothing may be told twice.
            oldest = min(oldest, _place(events[-1]))
        return EventPage(tuple(events), oldest)

    async def is_about(self, subject: str, user_id: int) -> bool:
        """Whether a subject is a reservation, a token or a place for notices of this user's."""
        found = await self._connection.execute(
            statement("subject_is_of_user"), {"subject": subject, "user_id": user_id}
        )
        theirs: bool = found.scalar_one()
        return theirs

    async def _oldest_looked_at(self, query: str, span: dict[str, Any]) -> Place | None:
        """Up to where the search came; None where it came to the end."""
        row = (await self._connection.execute(statement(query), span)).one_or_none()
        return None if row is None else (row.at, row.id)


def _place(event: RecordedEvent) -> Place:
    return event.at, event.id


def _recorded(row: Row[Any]) -> RecordedEvent:
    return RecordedEvent(
        id=row.id,
        at=row.at,
        actor=row.actor,
        kind=row.kind,
        subject=row.reservation_id or row.subject,
        before=row.before,
        after=row.after,
        reason_code=row.reason_code,
        reason=row.reason,
        data=row.data,
    )

"""Search the audit log in PostgreSQL, by time or by subject, with an index and a bounded number of events."""

from typing import Any

from sqlalchemy import Row

from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.ports.history.audit import EventFilter, EventPage, Place, RecordedEvent

LOOKED_AT = 10_000
"""Events that one search scans, some 5 ms and 500 pages of the table; a cursor continues from there."""

LOOKED_AT_OF_ONE = 1_000
"""The same for a search by subject, where every event may lie in another page."""


class Audit(StatementRunner):
    async def newest_first(self, which: EventFilter, *, before: Place | None, limit: int) -> EventPage:
        """At most `limit` events before a place. As the scan is bounded, a short or empty page may have a successor."""
        span: dict[str, Any] = {
            "from": which.from_,
            "to": which.to,
            "before_at": None if before is None else before[0],
            "before_id": None if before is None else before[1],
        }
        filters = {
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
        events = [_recorded(row) for row in await self._run(query, **(span | filters))]
        if len(events) > limit:
            return EventPage(tuple(events[:limit]), _place(events[limit - 1]))
        oldest = await self._oldest_looked_at(oldest_query, span)
        if oldest is not None and events:
            # Events recorded between the two statements move the second; no event may be shown twice.
            oldest = min(oldest, _place(events[-1]))
        return EventPage(tuple(events), oldest)

    async def is_about(self, subject: str, user_id: int) -> bool:
        """Whether a subject is a reservation, a token or a notification target of this user."""
        result = await self._run("subject_is_of_user", subject=subject, user_id=user_id)
        return bool(result.scalar_one())

    async def _oldest_looked_at(self, query: str, span: dict[str, Any]) -> Place | None:
        """The place of the last scanned event; None at the end of the log."""
        row = (await self._run(query, **span)).one_or_none()
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

"""Search the audit log in PostgreSQL, by time or by subject, with an index and a bounded number of events."""

from typing import Any

from sqlalchemy import Row

from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.ports.history.audit import EventFilter, EventOrder, EventPage, Place, RecordedEvent

LOOKED_AT = 10_000
"""Events that one search scans, some 5 ms and 500 pages of the table; a cursor continues from there."""

LOOKED_AT_OF_ONE = 1_000
"""The same for a search by subject, where every event may lie in another page."""


_SEARCHES = {
    (EventOrder.NEWEST_FIRST, False): ("events_newest_first", "oldest_event_looked_at"),
    (EventOrder.NEWEST_FIRST, True): ("events_of_subject", "oldest_event_of_subject_looked_at"),
    (EventOrder.OLDEST_FIRST, False): ("events_oldest_first", "newest_event_looked_at"),
    (EventOrder.OLDEST_FIRST, True): ("events_of_subject_oldest_first", "newest_event_of_subject_looked_at"),
}
"""By order, and whether it is of one subject: the search, and how far it looked."""


class Audit(StatementRunner):
    async def page(self, which: EventFilter, order: EventOrder, *, behind: Place | None, limit: int) -> EventPage:
        """At most `limit` events behind a place. As the scan is bounded, a short or empty page may have a successor."""
        at, event_id = (None, None) if behind is None else behind
        span: dict[str, Any] = {"from": which.from_, "to": which.to, "scanned": LOOKED_AT}
        match order:
            case EventOrder.NEWEST_FIRST:
                span |= {"before_at": at, "before_id": event_id}
            case EventOrder.OLDEST_FIRST:
                span |= {"after_at": at, "after_id": event_id}
        if which.subject is not None:
            span |= {"subject": which.subject, "scanned": LOOKED_AT_OF_ONE}
        filters = {
            "kinds": None if which.kinds is None else sorted(which.kinds),
            "actor": which.actor,
            "limit": limit + 1,
        }
        query, last_query = _SEARCHES[order, which.subject is not None]
        events = [_recorded(row) for row in await self._run(query, **(span | filters))]
        if len(events) > limit:
            return EventPage(tuple(events[:limit]), _place(events[limit - 1]))
        row = (await self._run(last_query, **span)).one_or_none()
        last = None if row is None else (row.at, row.id)
        if last is not None and events:
            # Events recorded between the two statements move the second; no event may be shown twice.
            last = (min if order is EventOrder.NEWEST_FIRST else max)(last, _place(events[-1]))
        return EventPage(tuple(events), last)

    async def is_about(self, subject: str, user_id: int) -> bool:
        """Whether a subject is a reservation, a token or a notification target of this user."""
        result = await self._run("subject_is_of_user", subject=subject, user_id=user_id)
        return bool(result.scalar_one())


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

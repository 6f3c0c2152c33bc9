"""The append-only audit log in PostgreSQL; the database refuses to change or delete events."""

import json
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.domain.event_kinds import EventKind
from reservation_core.domain.model import Reason
from reservation_core.domain.statuses import ReasonCode
from reservation_core.ports.history.events import EventRecord, Recorded


class ReservationEvent(NamedTuple):
    """An event about a reservation of any kind; `before` and `after` are statuses."""

    reservation_id: str
    at: datetime
    actor: str
    kind: EventKind
    before: str
    after: str
    reason_code: str
    reason: str
    data: dict[str, Any]


async def record_events(connection: AsyncConnection, events: Sequence[ReservationEvent]) -> None:
    """Record events about reservations in this order, in one statement."""
    if not events:
        return
    await connection.execute(
        statement("record_reservation_events"),
        {
            "ids": [event.reservation_id for event in events],
            "ats": [event.at for event in events],
            "actors": [event.actor for event in events],
            "kinds": [event.kind for event in events],
            "befores": [event.before for event in events],
            "afters": [event.after for event in events],
            "reason_codes": [event.reason_code for event in events],
            "reasons": [event.reason for event in events],
            "datas": [json.dumps(event.data) for event in events],
        },
    )


class Events(StatementRunner):
    """The append-only audit log."""

    async def of_reservation(self, reservation_id: str, after_id: int, limit: int) -> list[EventRecord]:
        """At most `limit` of a reservation's events after `after_id`, in order."""
        return [
            _event(row)
            for row in await self._run(
                "events_of_reservation", reservation_id=reservation_id, after_id=after_id, limit=limit
            )
        ]

    async def append(
        self,
        *,
        actor: str,
        kind: EventKind,
        at: datetime,
        subject: str | None = None,
        data: dict[str, Any] | None = None,
    ) -> None:
        """Record an event about something else than a reservation; `subject` names it (a token, a user, a node)."""
        await self._run("append_event", actor=actor, kind=kind, at=at, subject=subject, data=json.dumps(data or {}))

    async def newest(self) -> int:
        """The newest event's id; 0 without events."""
        return int((await self._run("newest_event")).scalar_one())

    async def after(self, event_id: int, limit: int, late: Collection[int] = ()) -> list[Recorded]:
        """The events of `late`, then at most `limit` events after an id, by id.

        `late`: smaller ids that become visible after greater ones.
        """
        result = await self._run("events_after", after_id=event_id, limit=limit, late=sorted(late))
        return [Recorded(row.id, row.kind, row.subject) for row in result]

    async def standing(self) -> tuple[object, ...]:
        """A mark that changes with every new event and estimate."""
        return tuple((await self._run("events_standing")).one())

    async def estimates_as_of(self) -> tuple[int, datetime | None]:
        """The number of waiting jobs with estimates, and their last change."""
        row = (await self._run("estimates_as_of")).one()
        return row.waiting, row.planned_at


def _event(row: Row[Any]) -> EventRecord:
    reason = None if row.reason_code is None else Reason(ReasonCode(row.reason_code), row.reason or "")
    return EventRecord(
        id=row.id,
        reservation_id=row.reservation_id,
        at=row.at,
        actor=row.actor,
        kind=row.kind,
        before=row.before,
        after=row.after,
        reason=reason,
        data=row.data,
    )

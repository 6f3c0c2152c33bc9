"""The append-only record in PostgreSQL; the database itself refuses to change or delete a line of it."""

import json
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.domain.event_kinds import EventKind
from reservation_core.domain.model import Reason, ReasonCode
from reservation_core.ports.history.events import EventRecord, Recorded


class ReservationEvent(NamedTuple):
    """One line of the record that is about a reservation, of whichever kind; `before` and `after` are its statuses."""

    reservation_id: str
    at: datetime
    actor: str
    kind: EventKind
    before: str
    after: str
    reason_code: str
    reason: str
    data: dict[str, Any]


async def record_all(connection: AsyncConnection, lines: Sequence[ReservationEvent]) -> None:
    """Record lines about reservations in the order given, in one statement."""
    if not lines:
        return
    await connection.execute(
        statement("record_reservation_events"),
        {
            "ids": [line.reservation_id for line in lines],
            "ats": [line.at for line in lines],
            "actors": [line.actor for line in lines],
            "kinds": [line.kind for line in lines],
            "befores": [line.before for line in lines],
            "afters": [line.after for line in lines],
            "reason_codes": [line.reason_code for line in lines],
            "reasons": [line.reason for line in lines],
            "datas": [json.dumps(line.data) for line in lines],
        },
    )


class Events:
    """The append-only record: who, what, before, after, why."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def of_reservation(self, reservation_id: str, after_id: int, limit: int) -> list[EventRecord]:
        """At most `limit` of a reservation's events after `after_id`, in order."""
        result = await self._connection.execute(
            statement("events_of_reservation"),
            {"reservation_id": reservation_id, "after_id": after_id, "limit": limit},
        )
        return [_event(row) for row in result]

    async def append(
        self,
        *,
        actor: str,
        kind: EventKind,
        at: datetime,
        subject: str | None = None,
        data: dict[str, Any] | None = None,
    ) -> None:
        """Record something that is not about a reservation; `subject` names it (a token, a user, a node)."""
        await self._connection.execute(
            statement("append_event"),
            {"actor": actor, "kind": kind, "at": at, "subject": subject, "data": json.dumps(data or {})},
        )

    async def newest(self) -> int:
        """The newest event's id; 0 without any."""
        return int((await self._connection.execute(statement("newest_event"))).scalar_one())

    async def after(self, event_id: int, limit: int, late: Collection[int] = ()) -> list[Recorded]:
        """At most `limit` of what was recorded after an event, in the order of the ids; before it those of `late`.

        An id may come to be seen after greater ones.
        """
        result = await self._connection.execute(
            statement("events_after"), {"after_id": event_id, "limit": limit, "late": sorted(late)}
        )
        return [Recorded(row.id, row.kind, row.subject) for row in result]

    async def standing(self) -> tuple[object, ...]:
        """What differs whenever something has been recorded, or estimates have changed; to be compared only."""
        return tuple((await self._connection.execute(statement("events_standing"))).one())

    async def estimates_as_of(self) -> tuple[int, datetime | None]:
        """How many who wait have estimates, and when these last changed."""
        row = (await self._connection.execute(statement("estimates_as_of"))).one()
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

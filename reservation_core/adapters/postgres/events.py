"""The append-only record in PostgreSQL; the database itself refuses to change or delete a line of it."""

import json
from datetime import datetime
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.queries import statement
from reservation_core.domain.model import Reason, ReasonCode
from reservation_core.ports.events import EventRecord


class PostgresEvents:
    """See ports.events.Events."""

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
        kind: str,
        at: datetime,
        subject: str | None = None,
        data: dict[str, Any] | None = None,
    ) -> None:
        """Record something that is not about a reservation; `subject` names it (a token, a user, a node)."""
        await self._connection.execute(
            statement("append_event"),
            {"actor": actor, "kind": kind, "at": at, "subject": subject, "data": json.dumps(data or {})},
        )


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

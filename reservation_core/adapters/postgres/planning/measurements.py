"""What metrics are made of, from PostgreSQL."""

from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.domain.model import FINAL_STATUSES, JobStatus, ReservationKind
from reservation_core.ports.planning.measurements import CalendarCount, EndedJob


class Measurements:
    """What metrics are made of; every call is cheap however many jobs there were."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def job_counts(self) -> list[tuple[JobStatus, int]]:
        """Jobs that have not ended, by status; all four statuses, zeros too."""
        found = await self._connection.execute(statement("unended_job_counts"))
        counts = {row.status: row.jobs for row in found}
        return [(status, counts.get(status.value, 0)) for status in JobStatus if status not in FINAL_STATUSES]

    async def newest_event(self, settled_before: datetime) -> int:
        """The newest event older than that; 0 when there is none."""
        found = await self._connection.execute(statement("newest_settled_event"), {"settled_before": settled_before})
        return found.scalar_one_or_none() or 0

    async def ended(self, after_event: int, up_to_event: int, limit: int) -> list[EndedJob]:
        """Jobs whose final event is in (after_event, up_to_event], in event order."""
        found = await self._connection.execute(
            statement("ended_jobs"), {"after_event": after_event, "up_to_event": up_to_event, "limit": limit}
        )
        return [
            EndedJob(row.event_id, JobStatus(row.status), row.created_at, row.started_at, row.finished_at)
            for row in found
        ]

    async def calendar_events(self, after_event: int, up_to_event: int) -> list[CalendarCount]:
        """What happened to bookings, windows and promises in (after_event, up_to_event]."""
        found = await self._connection.execute(
            statement("calendar_events"), {"after_event": after_event, "up_to_event": up_to_event}
        )
        return [CalendarCount(row.kind, ReservationKind(row.of), row.events) for row in found]

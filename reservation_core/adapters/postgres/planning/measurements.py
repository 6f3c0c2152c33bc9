"""Counts for metrics, and jobs and bookings of the past for simulations, from PostgreSQL."""

from datetime import datetime, timedelta

from reservation_core.adapters.postgres.rows import preemption_terms
from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.domain.bookings.asked_slots import LONGEST_BOOKING, Span
from reservation_core.domain.bookings.nouns import Wanted
from reservation_core.domain.jobs.promises import SLACK
from reservation_core.domain.statuses import FINAL_STATUSES, BookingStatus, JobStatus, ReservationKind
from reservation_core.ports.planning.measurements import (
    CalendarCount,
    FinishedJob,
    JudgedPredictions,
    PastBooking,
    PastJob,
)


class Measurements(StatementRunner):
    """Counts, past jobs and past bookings; the cost of a call does not grow with the number of past jobs."""

    async def job_counts(self) -> list[tuple[JobStatus, int]]:
        """The number of unended jobs by status, including zeros."""
        rows = await self._run("unended_job_counts")
        counts = {row.status: row.jobs for row in rows}
        return [(status, counts.get(status.value, 0)) for status in JobStatus if status not in FINAL_STATUSES]

    async def newest_event(self, settled_before: datetime) -> int:
        """The newest event before a time; 0 without any."""
        result = await self._run("newest_settled_event", settled_before=settled_before)
        return result.scalar_one_or_none() or 0

    async def ended(self, after_event: int, up_to_event: int, limit: int) -> list[FinishedJob]:
        """Jobs whose final event is in (after_event, up_to_event], in event order."""
        rows = await self._run("ended_jobs", after_event=after_event, up_to_event=up_to_event, limit=limit)
        return [
            FinishedJob(
                row.event_id,
                JobStatus(row.status),
                row.created_at,
                row.first_started_at,
                row.started_at,
                row.finished_at,
            )
            for row in rows
        ]

    async def calendar_events(self, after_event: int, up_to_event: int) -> list[CalendarCount]:
        """Counts of events about bookings, maintenance windows and promises in (after_event, up_to_event]."""
        rows = await self._run("calendar_events", after_event=after_event, up_to_event=up_to_event)
        return [CalendarCount(row.kind, ReservationKind(row.of), row.events) for row in rows]

    async def judged_predictions(self, after_event: int, up_to_event: int) -> JudgedPredictions:
        """How right the first predictions were of jobs that started in (after_event, up_to_event]."""
        values = {"after_event": after_event, "up_to_event": up_to_event, "slack_s": SLACK.total_seconds()}
        row = (await self._run("judged_predictions", **values)).one()
        return JudgedPredictions(row.starts, row.by_p50, row.by_p90)

    async def past_jobs(self, user_id: int | None, since: datetime, limit: int) -> list[PastJob]:
        """The newest `limit` jobs that were submitted since then, newest first; of one user, or with None of all."""
        rows = (await self._run("jobs_to_simulate", user_id=user_id, since=since, scanned=limit)).mappings()
        return [
            PastJob(
                row["seq"],
                row["user_id"],
                row["gpus"],
                row["nodes"],
                row["gpu_type"],
                row["priority"],
                row["project"],
                row["created_at"],
                row["started_at"],
                row["finished_at"],
                timedelta(seconds=row["duration_s"]),
                row["in_booking"],
                preemption_terms(row),
            )
            for row in rows
        ]

    async def past_bookings(self, user_id: int | None, since: datetime, limit: int) -> list[PastBooking]:
        """The `limit` bookings that begin last, of those that had GPUs since then, in the order in which they got them.

        They are one user's, or with None everybody's.
        """
        statuses = [status.value for status in BookingStatus]
        values = {"user_id": user_id, "since": since, "longest": LONGEST_BOOKING, "scanned": limit}
        rows = await self._run("bookings_to_simulate", every_status=statuses, **values)
        return [
            PastBooking(
                row.id,
                row.user_id,
                row.project,
                Wanted(row.gpus, row.nodes, row.gpu_type, row.node),
                Span(row.starts_at, row.ends_at),
                row.made_at,
                row.until,
            )
            for row in rows
        ]

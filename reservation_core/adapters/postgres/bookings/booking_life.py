"""Due changes of bookings in PostgreSQL; `bookings` has the changes that users request."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.bookings.calendar_due import due_parameters
from reservation_core.adapters.postgres.connection.queues import Queue
from reservation_core.adapters.postgres.history.events import ReservationEvent, record_events
from reservation_core.adapters.postgres.jobs.ledger_constraints import CALENDAR_CONSTRAINT, violates
from reservation_core.adapters.postgres.jobs.reservations import WriteConflictError
from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.contracts.queue_messages import JobMessage
from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.changes import DecidedBookingChange, GiveBack, HoldGpus
from reservation_core.domain.bookings.due_changes import BookingFacts, BookingRules
from reservation_core.domain.bookings.nouns import OPEN_BOOKINGS, Booking, Wanted
from reservation_core.domain.bookings.waitlist import WaitingRequest
from reservation_core.domain.changes import Record, WakePlanner
from reservation_core.domain.errors import CalendarConflictError
from reservation_core.domain.statuses import BookingStatus
from reservation_core.ports.bookings.booking_life import OrphanedJob, WaitlistMark
from reservation_core.ports.queues import QueueName


class BookingLife(StatementRunner):
    """Due changes of bookings, and the waitlist."""

    def __init__(self, connection: AsyncConnection, queue: Queue) -> None:
        super().__init__(connection)
        self._queue = queue

    async def block_plans(self) -> None:
        """Block plan writes until the transaction ends, after a current one. Must precede all row locks."""
        await self._run("block_plans")

    async def due(self, rules: BookingRules, now: datetime, limit: int) -> list[str]:
        """Bookings that may have a due change."""
        return [row.id for row in await self._run("due_bookings", **due_parameters(rules, now, limit))]

    async def facts(self, ids: Sequence[str]) -> dict[str, BookingFacts]:
        """The facts about these bookings, without their grace."""
        rows = await self._run("booking_facts", ids=list(ids))
        return {
            row.id: BookingFacts(
                used_by=None if row.used_by is None else (row.used_by, row.used_since),
                busy=row.busy,
                held=row.held,
                late=tuple(row.late),
                failed_workload=None if row.failed_job is None else (row.failed_job, row.failed_why),
            )
            for row in rows
        }

    async def apply(self, changes: Sequence[DecidedBookingChange]) -> None:
        """Write changes, in order for each booking: rows, then the ledger, the audit log and messages.

        Workloads are not started here (see `link_job`). Raises CalendarConflictError when GPUs are not free.
        """
        if not changes:
            return
        first: dict[str, Booking] = {}
        last: dict[str, Booking] = {}
        for change in changes:
            first.setdefault(change.before.id, change.before)
            last[change.after.id] = change.after
        await self._update_rows(first, list(last.values()), changes[0].at)
        await self._give_back(changes)
        await self._hold(changes)
        await self._record(changes)
        replanned = {
            change.after.id for change in changes if any(isinstance(effect, WakePlanner) for effect in change.effects)
        }
        messages = [JobMessage(kind="changed", id=booking_id).model_dump() for booking_id in sorted(replanned)]
        await self._queue.send(QueueName.GPU_JOBS, messages)

    async def _update_rows(self, first: dict[str, Booking], last: list[Booking], now: datetime) -> None:
        result = await self._run(
            "update_booking_reservations",
            ids=[booking.id for booking in last],
            versions=[first[booking.id].version for booking in last],
            statuses=[booking.status.value for booking in last],
            reason_codes=[booking.why.code.value for booking in last],
            reasons=[booking.why.detail for booking in last],
            gpu_types=[booking.wanted.gpu_type for booking in last],
            started_ats=[booking.activated_at for booking in last],
            finished_ats=[booking.finished_at for booking in last],
            starts_ats=[booking.span.start for booking in last],
            ends_ats=[booking.span.end for booking in last],
            now=now,
        )
        if result.rowcount != len(last):
            raise WriteConflictError(f"{result.rowcount} of {len(last)} bookings were still as they were read")
        await self._run(
            "update_bookings",
            ids=[booking.id for booking in last],
            starts_ats=[booking.span.start for booking in last],
            ends_ats=[booking.span.end for booking in last],
            offer_untils=[booking.offer_until for booking in last],
            used_ats=[booking.used_at for booking in last],
            release_ats=[booking.release_at for booking in last],
            start_warned=[booking.start_warned_at for booking in last],
            end_warned=[booking.end_warned_at for booking in last],
            no_show_warned=[booking.no_show_warned_at for booking in last],
        )

    async def _give_back(self, changes: Sequence[DecidedBookingChange]) -> None:
        returns = [(c.after.id, e) for c in changes for e in c.effects if isinstance(e, GiveBack)]
        if not returns:
            return
        ids = [booking_id for booking_id, _ in returns]
        ats = [effect.at for _, effect in returns]
        await self._run("drop_slots_beyond", ids=ids, ats=ats)
        await self._run("give_back_unbegun", ids=ids, ats=ats)
        closing = [effect.closing for _, effect in returns]
        await self._run("give_back_rest", ids=ids, ats=ats, closing=closing)

    async def _hold(self, changes: Sequence[DecidedBookingChange]) -> None:
        held = [(c, card) for c in changes for e in c.effects if isinstance(e, HoldGpus) for card in e.cards]
        if not held:
            return
        try:
            await self._run(
                "hold_booked_cards",
                ids=[change.after.id for change, _ in held],
                gpu_ids=[card.gpu_id for _, card in held],
                ranks=[card.rank for _, card in held],
                begins=[change.at for change, _ in held],
            )
        except IntegrityError as error:
            if violates(error, CALENDAR_CONSTRAINT):
                raise CalendarConflictError("Another request took some of these GPUs in the meantime.") from error
            raise

    async def _record(self, changes: Sequence[DecidedBookingChange]) -> None:
        events = []
        for change in changes:
            slot = {"start": change.after.span.start.isoformat(), "end": change.after.span.end.isoformat()}
            before, after, why = change.before.status.value, change.after.status.value, change.after.why
            events += [
                ReservationEvent(
                    change.after.id,
                    change.at,
                    effect.actor,
                    effect.kind,
                    before,
                    after,
                    why.code.value,
                    why.detail,
                    slot | effect.data,
                )
                for effect in change.effects
                if isinstance(effect, Record)
            ]
        await record_events(self._connection, events)

    async def link_job(self, booking_id: str, job_id: str) -> None:
        """Store the job that runs a booking's workload."""
        await self._run("link_started_job", id=booking_id, job_id=job_id)

    async def left_over(self, now: datetime, limit: int) -> list[OrphanedJob]:
        """Jobs that wait, start or run within bookings that have ended by their status or by the clock."""
        rows = await self._run("left_over_jobs", now=now, limit=limit)
        return [
            OrphanedJob(row.job_id, row.booking_id, BookingStatus(row.booking_status), row.booking_end) for row in rows
        ]

    async def waitlist_mark(self) -> WaitlistMark:
        """A mark that changes with the waitlist."""
        row = (await self._run("waitlist_mark")).one()
        return WaitlistMark(row.waiting, row.last, row.versions)

    async def waiting(self, limit: int) -> list[WaitingRequest]:
        """The waitlist, in the order of the requests."""
        rows = await self._run("waitlist", limit=limit)
        return [
            WaitingRequest(
                row.id,
                row.user_id,
                row.user_name,
                row.project,
                Wanted(row.gpus, row.nodes, row.gpu_type, row.node),
                Span(row.starts_at, row.ends_at),
            )
            for row in rows
        ]

    async def counts(self) -> list[tuple[BookingStatus, int]]:
        """The number of open bookings by status, including zeros."""
        rows = await self._run("open_booking_counts")
        counts = {row.status: row.bookings for row in rows}
        return [(status, counts.get(status.value, 0)) for status in BookingStatus if status in OPEN_BOOKINGS]

"""Bookings in PostgreSQL, changed by what is due. Making and changing them at a person's wish is in `bookings`."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.bookings.calendar_due import due_parameters
from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.adapters.postgres.connection.queues import Queue
from reservation_core.adapters.postgres.history.events import ReservationEvent, record_all
from reservation_core.adapters.postgres.jobs.reservations import CALENDAR_CONSTRAINT, WriteConflictError, violates
from reservation_core.contracts.queue_messages import JobMessage
from reservation_core.domain.bookings.changes import DecidedBookingChange, GiveBack, HoldCards
from reservation_core.domain.bookings.life import BookingFacts, BookingRules
from reservation_core.domain.bookings.nouns import OPEN_BOOKINGS, Booking, Span, Wanted
from reservation_core.domain.bookings.waitlist import WaitingRequest
from reservation_core.domain.changes import Record, WakePlanner
from reservation_core.domain.errors import CalendarConflictError
from reservation_core.domain.model import BookingStatus
from reservation_core.ports.bookings.booking_life import LeftOver, WaitlistMark
from reservation_core.ports.queues import QueueName


class BookingLife:
    """Bookings, changed by what is due."""

    def __init__(self, connection: AsyncConnection, queue: Queue) -> None:
        self._connection = connection
        self._queue = queue

    async def hold_planning(self) -> None:
        """Wait for a plan that is being written, and let none be until the transaction ends.

        To be asked for before any row is locked.
        """
        await self._connection.execute(statement("hold_planning"))

    async def due(self, rules: BookingRules, now: datetime, limit: int) -> list[str]:
        """Bookings of which the clock may ask something."""
        found = await self._connection.execute(statement("due_bookings"), due_parameters(rules, now, limit))
        return [row.id for row in found]

    async def facts(self, ids: Sequence[str]) -> dict[str, BookingFacts]:
        """The facts around these bookings, but for their grace."""
        found = await self._connection.execute(statement("booking_facts"), {"ids": list(ids)})
        return {
            row.id: BookingFacts(
                used_by=None if row.used_by is None else (row.used_by, row.used_since),
                busy=row.busy,
                held=row.held,
                late=tuple(row.late),
                failed_workload=None if row.failed_job is None else (row.failed_job, row.failed_why),
            )
            for row in found
        }

    async def apply(self, changes: Sequence[DecidedBookingChange]) -> None:
        """Write changes, those of one booking in their order: rows first, then the ledger, the record and the messages.

        Workloads are not started here (see `link_job`). Raises CalendarConflictError when cards are not free.
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
        looks = {
            change.after.id for change in changes if any(isinstance(effect, WakePlanner) for effect in change.effects)
        }
        messages = [JobMessage(kind="changed", id=booking_id).model_dump() for booking_id in sorted(looks)]
        await self._queue.send(QueueName.GPU_JOBS, messages)

    async def _update_rows(self, first: dict[str, Booking], rows: list[Booking], now: datetime) -> None:
        result = await self._connection.execute(
            statement("update_booking_reservations"),
            {
                "ids": [row.id for row in rows],
                "versions": [first[row.id].version for row in rows],
                "statuses": [row.status.value for row in rows],
                "reason_codes": [row.why.code.value for row in rows],
                "reasons": [row.why.detail for row in rows],
                "gpu_types": [row.wanted.gpu_type for row in rows],
                "started_ats": [row.activated_at for row in rows],
                "finished_ats": [row.finished_at for row in rows],
                "starts_ats": [row.span.start for row in rows],
                "ends_ats": [row.span.end for row in rows],
                "now": now,
            },
        )
        if result.rowcount != len(rows):
            raise WriteConflictError(f"{result.rowcount} of {len(rows)} bookings were still as they were read")
        await self._connection.execute(
            statement("update_bookings"),
            {
                "ids": [row.id for row in rows],
                "starts_ats": [row.span.start for row in rows],
                "ends_ats": [row.span.end for row in rows],
                "offer_untils": [row.offer_until for row in rows],
                "used_ats": [row.used_at for row in rows],
                "release_ats": [row.release_at for row in rows],
                "start_warned": [row.start_warned_at for row in rows],
                "end_warned": [row.end_warned_at for row in rows],
                "no_show_warned": [row.no_show_warned_at for row in rows],
            },
        )

    async def _give_back(self, changes: Sequence[DecidedBookingChange]) -> None:
        given = [(c.after.id, e) for c in changes for e in c.effects if isinstance(e, GiveBack)]
        if not given:
            return
        ids = [booking_id for booking_id, _ in given]
        ats = [effect.at for _, effect in given]
        await self._connection.execute(statement("drop_slots_beyond"), {"ids": ids, "ats": ats})
        await self._connection.execute(statement("give_back_unbegun"), {"ids": ids, "ats": ats})
        closing = [effect.closing for _, effect in given]
        await self._connection.execute(statement("give_back_rest"), {"ids": ids, "ats": ats, "closing": closing})

    async def _hold(self, changes: Sequence[DecidedBookingChange]) -> None:
        held = [(c, card) for c in changes for e in c.effects if isinstance(e, HoldCards) for card in e.cards]
        if not held:
            return
        try:
            await self._connection.execute(
                statement("hold_booked_cards"),
                {
                    "ids": [change.after.id for change, _ in held],
                    "gpu_ids": [card.gpu_id for _, card in held],
                    "ranks": [card.rank for _, card in held],
                    "begins": [change.at for change, _ in held],
                },
            )
        except IntegrityError as error:
            if violates(error, CALENDAR_CONSTRAINT):
                raise CalendarConflictError("Somebody else has taken some of these GPUs meanwhile.") from error
            raise

    async def _record(self, changes: Sequence[DecidedBookingChange]) -> None:
        lines = []
        for change in changes:
            slot = {"start": change.after.span.start.isoformat(), "end": change.after.span.end.isoformat()}
            before, after, why = change.before.status.value, change.after.status.value, change.after.why
            lines += [
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
        await record_all(self._connection, lines)

    async def link_job(self, booking_id: str, job_id: str) -> None:
        """Note that a booking's workload has become this job."""
        await self._connection.execute(statement("link_started_job"), {"id": booking_id, "job_id": job_id})

    async def left_over(self, now: datetime, limit: int) -> list[LeftOver]:
        """Jobs that wait, start or run within bookings that are over by their status or by the clock."""
        found = await self._connection.execute(statement("left_over_jobs"), {"now": now, "limit": limit})
        return [
            LeftOver(row.job_id, row.booking_id, BookingStatus(row.booking_status), row.booking_end) for row in found
        ]

    async def waitlist_mark(self) -> WaitlistMark:
        """Equal to an earlier one only if the waitlist is as it was then."""
        row = (await self._connection.execute(statement("waitlist_mark"))).one()
        return WaitlistMark(row.waiting, row.last, row.versions)

    async def waiting(self, limit: int) -> list[WaitingRequest]:
        """The waitlist, first come first."""
        found = await self._connection.execute(statement("waitlist"), {"limit": limit})
        return [
            WaitingRequest(
                row.id,
                row.user_id,
                row.user_name,
                row.project,
                Wanted(row.gpus, row.nodes, row.gpu_type, row.node),
                Span(row.starts_at, row.ends_at),
            )
            for row in found
        ]

    async def counts(self) -> list[tuple[BookingStatus, int]]:
        """How many bookings are open, by status; zeros too."""
        found = await self._connection.execute(statement("open_booking_counts"))
        counts = {row.status: row.bookings for row in found}
        return [(status, counts.get(status.value, 0)) for status in BookingStatus if status in OPEN_BOOKINGS]

"""Bookings in PostgreSQL. Exclusion constraints decide races for a GPU, and the loser gets an error."""

import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import accumulate, groupby, pairwise
from typing import Any

import numpy as np
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.bookings.booking_rows import booking_document, booking_of
from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.adapters.postgres.jobs.ledger_constraints import CALENDAR_CONSTRAINT
from reservation_core.adapters.postgres.jobs.reservations import WriteConflictError
from reservation_core.adapters.postgres.nodes.node_links import node_links
from reservation_core.adapters.postgres.sealing import PLAIN, Sealing
from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.domain.bookings.asked_slots import LONGEST_BOOKING, Span
from reservation_core.domain.bookings.busy_ranges import BusyRanges
from reservation_core.domain.bookings.card_choice import LedgerGpu
from reservation_core.domain.bookings.nouns import Booking
from reservation_core.domain.calendar import to_micros
from reservation_core.domain.event_kinds import BookingEventKind
from reservation_core.domain.statuses import BookingStatus, ReservationKind
from reservation_core.ports.bookings.bookings import (
    BookingFilter,
    CalendarEntries,
    CalendarEntry,
    ChangedBooking,
    EntryMerging,
    MergedEntries,
    NewBooking,
    NewSeries,
)

EVERY_STATUS = [status.value for status in BookingStatus]

_DEADLOCK = "40P01"

_MERGED_FIELDS = 8
"""The first columns of `calendar_entries`: what is said of merged entries."""

# The server counts microseconds since 2000.
_Y2K = to_micros(datetime(2000, 1, 1, tzinfo=UTC))


class _LostRaceError(Exception):
    """Another transaction has taken a GPU."""


class Bookings(StatementRunner):
    """Bookings, their GPUs and the calendar."""

    def __init__(self, connection: AsyncConnection, sealing: Sealing = PLAIN) -> None:
        super().__init__(connection)
        self._sealing = sealing

    async def lock_calendar(self) -> None:
        """Serialise bookings that lost too many races."""
        await self._run("lock_calendar")

    async def check_deferred_constraints(self) -> None:
        """Check deferred constraints now and immediately from now on: jobs must stay within their booking."""
        await self._run("check_deferred_constraints")

    async def cards(self, start: datetime, end: datetime, *, without: Collection[str] = ()) -> list[LedgerGpu]:
        """Every GPU of existing nodes, with its open ranges that overlap [start, end).

        `without`: reservations whose ranges don't count.
        """
        rows = (await self._run("bookable_cards", start=start, end=end, without=list(without))).all()
        links = await node_links(self._connection)
        busy = _busy([(begins or b"", ends or b"") for *_, begins, ends in rows])
        return [
            LedgerGpu(
                gpu_id,
                node,
                index,
                gpu_type,
                bookable,
                usable_now,
                overrun,
                ranges,
                links.get(node),
                cordoned,
            )
            for (gpu_id, node, index, gpu_type, bookable, usable_now, overrun, cordoned, _, _), ranges in zip(
                rows, busy, strict=True
            )
        ]

    async def add(self, new: Sequence[NewBooking], series: NewSeries | None) -> bool:
        """Store bookings with their GPUs, events and messages, all or none.

        False when another transaction took a GPU meanwhile; this transaction stays usable.
        """
        cards = [(booking.booking.id, card) for booking in new for card in booking.chosen]
        documents = [
            booking_document(
                booking.booking,
                booking.booking.user,
                BookingEventKind.WAITLISTED
                if booking.booking.status is BookingStatus.WAITING
                else BookingEventKind.CONFIRMED,
                self._sealing,
            )
            for booking in new
        ]
        async with self._raced() as race:
            if series is not None:
                await self._run(
                    "add_series",
                    id=series.id,
                    user_id=series.user_id,
                    rule=series.rule,
                    time_zone=series.time_zone,
                    created_at=series.created_at,
                )
            added = await self._run(
                "add_bookings",
                bookings=json.dumps(documents),
                owners=[booking_id for booking_id, _ in cards],
                gpu_ids=[card.gpu_id for _, card in cards],
                ranks=[card.rank for _, card in cards],
            )
            if added.one().cards != len(cards):
                raise _LostRaceError
        return race.won

    async def change(self, changed: ChangedBooking, actor: str, kind: BookingEventKind, now: datetime) -> bool:
        """Write a change with its event (of this kind) and message. False as in `add`."""
        after = changed.after
        when = {"id": after.id, "start": after.span.start, "end": after.span.end}
        async with self._raced() as race:
            await self._write(changed.before, after, now)
            await self._run("write_booking_times", **when, **_times(after))
            if changed.before.span != after.span or not changed.keeps_cards:
                stays = (after.span.start, after.span.end) if changed.keeps_cards else (None, None)
                await self._drop_plans([after.id], *stays)
                if changed.keeps_cards:
                    begun = changed.before.span.start <= now
                    await self._run("move_booked_cards", **when, now=now, begun=begun)
                else:
                    await self._run("drop_booked_cards", ids=[after.id])
                    await self._place(changed, when, now)
            await self._record(changed.before, after, actor, kind, now)
        return race.won

    async def _place(self, changed: ChangedBooking, when: Mapping[str, Any], now: datetime) -> None:
        placed = await self._run(
            "place_booked_cards",
            **when,
            now=now,
            gpu_ids=[card.gpu_id for card in changed.chosen],
            ranks=[card.rank for card in changed.chosen],
        )
        if placed.rowcount != len(changed.chosen):
            raise _LostRaceError

    async def cancel(self, before: Sequence[Booking], after: Sequence[Booking], actor: str, now: datetime) -> None:
        """Cancel locked bookings and free the rest of their time from `now` on."""
        begun = [booking.id for booking in before if booking.span.start <= now]
        ahead = [booking.id for booking in before if booking.span.start > now]
        await self._drop_plans([booking.id for booking in before], None, None)
        if begun:
            await self._run("cut_within", ids=begun, now=now)
            await self._run("close_booked_cards", ids=begun, now=now)
        if ahead:
            await self._run("drop_booked_cards", ids=ahead)
        for booking, cancelled in zip(before, after, strict=True):
            await self._write(booking, cancelled, now)
            await self._record(booking, cancelled, actor, BookingEventKind.CANCELLED, now)

    async def lock(self, ids: Sequence[str]) -> dict[str, Booking]:
        """Lock bookings, then read them with their GPUs and jobs; unknown ids are left out."""
        await self._run("lock_bookings", ids=list(ids))
        return {booking.id: booking for booking in await self._whole(ids)}

    async def view(self, booking_id: str) -> Booking | None:
        bookings = await self._whole([booking_id])
        return bookings[0] if bookings else None

    async def project_of(self, booking_id: str, user_id: int) -> str | None:
        """The project of a user's booking; None without a project, or for another user's booking."""
        result = await self._run("project_of_booking", id=booking_id, user_id=user_id)
        project: str | None = result.scalar_one_or_none()
        return project

    async def views(self, which: BookingFilter, *, limit: int, after: tuple[datetime, str] | None) -> list[Booking]:
        """Bookings after (start, id), in that order."""
        rows = await self._connection.execute(
            statement("list_bookings"),
            {
                "after_start": None if after is None else after[0],
                "after_id": "" if after is None else after[1],
                "from": which.from_,
                "to": which.to,
                "user_id": which.user_id,
                "only_own": which.only_own,
                "user": which.user,
                "statuses": None if which.statuses is None else [status.value for status in which.statuses],
                "every_status": EVERY_STATUS,
                "limit": limit,
            },
        )
        return await self._whole([row.id for row in rows])

    async def entries(
        self,
        start: datetime,
        end: datetime,
        gpu_ids: Sequence[int],
        *,
        only_of: int | None = None,
        limit: int | None = None,
        merging: EntryMerging | None = None,
    ) -> CalendarEntries:
        """Reservations of these GPUs in [start, end), by start and id; `only_of`: of this user alone.

        At most `limit` single ones. Jobs within bookings are left out, as the booking covers their time.
        """
        result = await self._run(
            "calendar_entries",
            start=start,
            end=end,
            gpu_ids=list(gpu_ids),
            only_of=only_of,
            limit=limit,
            **_merged_how(merging),
        )
        rows = result.all()  # a third of the time of reading thousands one by one
        if not rows or rows[0].place is None:
            return CalendarEntries([_entry(row[_MERGED_FIELDS:]) for row in rows])
        by_line = groupby(rows, key=lambda row: row[:_MERGED_FIELDS])
        return CalendarEntries(
            (),
            [
                MergedEntries(
                    place,
                    mine,
                    long,
                    ReservationKind(kind),
                    count,
                    Span(begin, over),
                    tuple(_entry(row[_MERGED_FIELDS:]) for row in first),
                )
                for (place, _, mine, long, kind, count, begin, over), first in by_line
            ],
        )

    async def latest(
        self, user_id: int, from_: datetime, statuses: frozenset[BookingStatus], limit: int
    ) -> list[Booking]:
        """A user's bookings that end after `from_`, by start and id; the latest `limit` of them."""
        rows = await self._connection.execute(
            statement("feed_bookings"),
            {
                "user_id": user_id,
                "from": from_,
                "longest_s": LONGEST_BOOKING.total_seconds(),
                "statuses": sorted(statuses),
                "limit": limit,
            },
        )
        return await self._whole([row.id for row in rows])

    async def of_series(self, series_id: str, from_occurrence: int) -> list[str]:
        """The ids of a series' open bookings, from an occurrence on."""
        return [
            row.id for row in await self._run("bookings_of_series", series_id=series_id, occurrence=from_occurrence)
        ]

    async def jobs_within(self, booking_ids: Sequence[str]) -> list[str]:
        """The ids of unended jobs of these bookings."""
        return [row.id for row in await self._run("jobs_within", ids=list(booking_ids))]

    async def taken_within(self, booking_id: str) -> list[tuple[str, datetime]]:
        """Jobs of a booking that hold GPUs, and their end in the calendar."""
        rows = await self._run("taken_within", id=booking_id)
        return [(row.reservation_id, row.until) for row in rows]

    async def _whole(self, ids: Sequence[str]) -> list[Booking]:
        """Bookings with their GPUs, by start and id."""
        rows = (await self._run("booking_views", ids=list(ids))).all()
        cards = await self._run("booking_cards", ids=[row.id for row in rows])
        by_booking = {
            booking_id: list(group) for booking_id, group in groupby(cards, key=lambda row: row.reservation_id)
        }
        bookings = [booking_of(row, by_booking.get(row.id, ()), self._sealing) for row in rows]
        return sorted(bookings, key=lambda booking: (booking.span.start, booking.id))

    async def _drop_plans(self, ids: Sequence[str], start: datetime | None, end: datetime | None) -> None:
        await self._run("drop_plans_within", ids=list(ids), start=start, end=end)

    async def _write(self, before: Booking, after: Booking, now: datetime) -> None:
        written = await self._run(
            "write_booking",
            id=after.id,
            version=before.version,
            name=after.title,
            status=after.status.value,
            reason_code=after.why.code.value,
            reason=after.why.detail,
            gpu_type=after.wanted.gpu_type,
            start=after.span.start,
            end=after.span.end,
            finished_at=after.finished_at,
            now=now,
        )
        if written.rowcount != 1:
            raise WriteConflictError(f"{after.id} was changed between reading and writing")

    async def _record(self, before: Booking, after: Booking, actor: str, kind: BookingEventKind, now: datetime) -> None:
        data = {"start": after.span.start.isoformat(), "end": after.span.end.isoformat()}
        if before.span != after.span:
            data |= {"start_before": before.span.start.isoformat(), "end_before": before.span.end.isoformat()}
        await self._run(
            "record_booking",
            id=after.id,
            now=now,
            actor=actor,
            kind=kind,
            before=before.status.value,
            after=after.status.value,
            reason_code=after.why.code.value,
            reason=after.why.detail,
            data=json.dumps(data),
        )

    @asynccontextmanager
    async def _raced(self) -> AsyncIterator["_Race"]:
        """Undo the block's writes when another transaction has taken a GPU; this transaction stays usable."""
        race = _Race()
        savepoint = await self._connection.begin_nested()
        try:
            yield race
        except _LostRaceError:
            await savepoint.rollback()
            race.won = False
        except DBAPIError as error:
            await savepoint.rollback()
            if not is_lost_race(error):
                raise
            race.won = False
        except BaseException:
            await savepoint.rollback()
            raise
        else:
            await savepoint.commit()


class _Race:
    """The outcome of the block."""

    def __init__(self) -> None:
        self.won = True


def is_lost_race(error: DBAPIError) -> bool:
    """Whether another transaction took a GPU: by the exclusion constraint, or by a deadlock of two such races."""
    return CALENDAR_CONSTRAINT in str(error.orig) or getattr(error.orig, "sqlstate", None) == _DEADLOCK


def _merged_how(merging: EntryMerging | None) -> dict[str, Any]:
    if merging is None:
        return {"merged_above": None, "places": [], "steps": [], "step_s": 0.0, "viewer": None, "named": 0}
    return {
        "merged_above": merging.above,
        "places": list(merging.places),
        "steps": list(merging.steps),
        "step_s": merging.step_length.total_seconds(),
        "viewer": merging.viewer,
        "named": merging.named,
    }


def _entry(fields: Sequence[Any]) -> CalendarEntry:
    id_, kind, *asked, begin, over, series_id, gpu_ids, end = fields
    values = (id_, ReservationKind(kind), *asked, Span(begin, over), series_id, tuple(gpu_ids), end)
    return CalendarEntry(*values)


def _times(booking: Booking) -> dict[str, Any]:
    return {"node": booking.wanted.node, "waits_until": booking.waits_until}


def _busy(sent: Sequence[tuple[bytes, bytes]]) -> list[BusyRanges]:
    """The ranges of each GPU, whose starts and ends were sent as integers of eight bytes, the largest first.

    All are converted at once: one GPU after the other takes four times as long.
    """
    begins, ends = (np.frombuffer(b"".join(bounds[at] for bounds in sent), ">i8") + _Y2K for at in (0, 1))
    cuts = [0, *accumulate(len(bounds) // 8 for bounds, _ in sent)]
    return [BusyRanges(begins[first:after], ends[first:after]) for first, after in pairwise(cuts)]

"""Bookings in PostgreSQL. The exclusion constraints have the last word on who gets a card; who loses is told so."""

import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import groupby
from struct import Struct
from typing import Any

from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.bookings.booking_rows import booked_card_of, booking_document, booking_of
from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.adapters.postgres.jobs.reservations import CALENDAR_CONSTRAINT, WriteConflictError
from reservation_core.adapters.postgres.nodes.node_links import node_links
from reservation_core.adapters.postgres.sealing import PLAIN, Sealing
from reservation_core.domain.bookings.card_choice import KnownCard
from reservation_core.domain.bookings.nouns import LONGEST_BOOKING, Booking, Span
from reservation_core.domain.calendar import Range, to_micros
from reservation_core.domain.event_kinds import BookingEventKind
from reservation_core.domain.model import BookingStatus, ReservationKind
from reservation_core.ports.bookings.bookings import BookingFilter, CalendarEntry, ChangedBooking, NewBooking, NewSeries

EVERY_STATUS = [status.value for status in BookingStatus]

_DEADLOCK = "40P01"

# What `range_send` makes of a range with two bounds: a byte of flags, then each bound with its length before it. A time
# is microseconds since 2000.
_RANGE = Struct(">5xq4xq")
_Y2K = to_micros(datetime(2000, 1, 1, tzinfo=UTC))


class _LostRaceError(Exception):
    """Somebody else has taken a card."""


class Bookings:
    """Bookings, their cards and the calendar."""

    def __init__(self, connection: AsyncConnection, sealing: Sealing = PLAIN) -> None:
        self._connection = connection
        self._sealing = sealing

    async def lock_calendar(self) -> None:
        """Wait for others who had to lock it, too: whoever lost too many races books alone."""
        await self._connection.execute(statement("lock_calendar"))

    async def judge_now(self) -> None:
        """Have deferred constraints checked now, and from now on at once: whether what is within a booking stays so."""
        await self._connection.execute(statement("check_deferred_constraints"))

    async def cards(self, start: datetime, end: datetime, *, without: Collection[str] = ()) -> list[KnownCard]:
        """Every card of nodes that exist, with its open ranges that touch [start, end).

        `without`: reservations whose own ranges don't count.
        """
        found = await self._connection.execute(
            statement("bookable_cards"), {"start": start, "end": end, "without": list(without)}
        )
        links = await node_links(self._connection)
        return [
            KnownCard(
                gpu_id, node, index, gpu_type, bookable, usable_now, overrun, _rows(ranges), links.get(node), cordoned
            )
            for gpu_id, node, index, gpu_type, bookable, usable_now, overrun, ranges, cordoned in found
        ]

    async def add(self, new: Sequence[NewBooking], series: NewSeries | None) -> bool:
        """Store bookings with cards, record and message, all or none.

        False: somebody else took a card meanwhile. The transaction stays usable.
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
                await self._connection.execute(
                    statement("add_series"),
                    {
                        "id": series.id,
                        "user_id": series.user_id,
                        "rule": series.rule,
                        "time_zone": series.time_zone,
                        "created_at": series.created_at,
                    },
                )
            found = await self._connection.execute(
                statement("add_bookings"),
                {
                    "bookings": json.dumps(documents),
                    "owners": [booking_id for booking_id, _ in cards],
                    "gpu_ids": [card.gpu_id for _, card in cards],
                    "ranks": [card.rank for _, card in cards],
                },
            )
            if found.one().cards != len(cards):
                raise _LostRaceError
        return race.won

    async def change(self, changed: ChangedBooking, actor: str, kind: BookingEventKind, now: datetime) -> bool:
        """Write a change, with its record (an event of this kind) and message. False as with `add`."""
        after = changed.after
        when = {"id": after.id, "start": after.span.start, "end": after.span.end}
        async with self._raced() as race:
            await self._write(changed.before, after, now)
            await self._connection.execute(statement("write_booking_times"), {**when, **_times(after)})
            if changed.before.span != after.span or not changed.keeps_cards:
                stays = (after.span.start, after.span.end) if changed.keeps_cards else (None, None)
                await self._drop_plans([after.id], *stays)
                if changed.keeps_cards:
                    begun = changed.before.span.start <= now
                    await self._connection.execute(statement("move_booked_cards"), {**when, "now": now, "begun": begun})
                else:
                    await self._connection.execute(statement("drop_booked_cards"), {"ids": [after.id]})
                    await self._place(changed, when, now)
            await self._record(changed.before, after, actor, kind, now)
        return race.won

    async def _place(self, changed: ChangedBooking, when: Mapping[str, Any], now: datetime) -> None:
        placed = await self._connection.execute(
            statement("place_booked_cards"),
            {
                **when,
                "now": now,
                "gpu_ids": [card.gpu_id for card in changed.chosen],
                "ranks": [card.rank for card in changed.chosen],
            },
        )
        if placed.rowcount != len(changed.chosen):
            raise _LostRaceError

    async def cancel(self, before: Sequence[Booking], after: Sequence[Booking], actor: str, now: datetime) -> None:
        """Write bookings that were locked as cancelled: what is left of their time goes back at `now`."""
        begun = [booking.id for booking in before if booking.span.start <= now]
        ahead = [booking.id for booking in before if booking.span.start > now]
        await self._drop_plans([booking.id for booking in before], None, None)
        if begun:
            await self._connection.execute(statement("cut_within"), {"ids": begun, "now": now})
            await self._connection.execute(statement("close_booked_cards"), {"ids": begun, "now": now})
        if ahead:
            await self._connection.execute(statement("drop_booked_cards"), {"ids": ahead})
        for was, becomes in zip(before, after, strict=True):
            await self._write(was, becomes, now)
            await self._record(was, becomes, actor, BookingEventKind.CANCELLED, now)

    async def lock(self, ids: Sequence[str]) -> dict[str, Booking]:
        """Lock rows, and read them with their cards and jobs after that; unknown ids are left out."""
        await self._connection.execute(statement("lock_bookings"), {"ids": list(ids)})
        return {booking.id: booking for booking in await self._whole(ids)}

    async def view(self, booking_id: str) -> Booking | None:
        """One booking with its cards and jobs."""
        found = await self._whole([booking_id])
        return found[0] if found else None

    async def project_of(self, booking_id: str, user_id: int) -> str | None:
        """The project that a user's booking is for; None for a booking without one, or that is not theirs."""
        found = await self._connection.execute(statement("project_of_booking"), {"id": booking_id, "user_id": user_id})
        project: str | None = found.scalar_one_or_none()
        return project

    async def views(self, which: BookingFilter, *, limit: int, after: tuple[datetime, str] | None) -> list[Booking]:
        """By start and id, those after (start, id)."""
        found = await self._connection.execute(
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
        return await self._whole([row.id for row in found])

    async def entries(
        self, start: datetime, end: datetime, gpu_ids: Collection[int], *, only_of: int | None = None
    ) -> list[CalendarEntry]:
        """What has one of these cards at some time in [start, end), by start and id; `only_of`: only this user's.

        What runs within a booking lies in the booking's time and is left out.
        """
        result = await self._connection.execute(
            statement("calendar_entries"),
            {
                "start": start,
                "end": end,
                "gpu_ids": list(gpu_ids),
                "only_of": only_of,
            },
        )
        found = result.all()  # there may be thousands: one by one they would take three times as long
        return [
            CalendarEntry(
                id_, ReservationKind(kind), status, planned, user_id, user, title, gpus, nodes, span, series_id, cards
            )
            for id_, kind, status, planned, user_id, user, title, gpus, nodes, begin, over, series_id, ids in found
            for span, cards in ((Span(begin, over), tuple(ids)),)
        ]

    async def latest(
        self, user_id: int, from_: datetime, statuses: frozenset[BookingStatus], limit: int
    ) -> list[Booking]:
        """A user's own that end after `from_`, by start and id; of too many the latest."""
        found = await self._connection.execute(
            statement("feed_bookings"),
            {
                "user_id": user_id,
                "from": from_,
                "longest_s": LONGEST_BOOKING.total_seconds(),
                "statuses": sorted(statuses),
                "limit": limit,
            },
        )
        return await self._whole([row.id for row in found])

    async def of_series(self, series_id: str, from_occurrence: int) -> list[str]:
        """The ids of a series' bookings that are not over, from an occurrence on."""
        found = await self._connection.execute(
            statement("bookings_of_series"), {"series_id": series_id, "occurrence": from_occurrence}
        )
        return [row.id for row in found]

    async def jobs_within(self, booking_ids: Sequence[str]) -> list[str]:
        """The ids of jobs of these bookings that have not ended."""
        found = await self._connection.execute(statement("jobs_within"), {"ids": list(booking_ids)})
        return [row.id for row in found]

    async def taken_within(self, booking_id: str) -> list[tuple[str, datetime]]:
        """Jobs of a booking that hold cards, and until when by the calendar."""
        found = await self._connection.execute(statement("taken_within"), {"id": booking_id})
        return [(row.reservation_id, row.until) for row in found]

    async def _whole(self, ids: Sequence[str]) -> list[Booking]:
        """Bookings in the order of their start and id."""
        rows = (await self._connection.execute(statement("booking_views"), {"ids": list(ids)})).all()
        cards = await self._connection.execute(statement("booking_cards"), {"ids": [row.id for row in rows]})
        by_booking = {
            booking_id: [booked_card_of(row) for row in group]
            for booking_id, group in groupby(cards, key=lambda row: row.reservation_id)
        }
        found = [booking_of(row, by_booking.get(row.id, ()), self._sealing) for row in rows]
        return sorted(found, key=lambda booking: (booking.span.start, booking.id))

    async def _drop_plans(self, ids: Sequence[str], start: datetime | None, end: datetime | None) -> None:
        await self._connection.execute(statement("drop_plans_within"), {"ids": list(ids), "start": start, "end": end})

    async def _write(self, before: Booking, after: Booking, now: datetime) -> None:
        written = await self._connection.execute(
            statement("write_booking"),
            {
                "id": after.id,
                "version": before.version,
                "name": after.title,
                "status": after.status.value,
                "reason_code": after.why.code.value,
                "reason": after.why.detail,
                "gpu_type": after.wanted.gpu_type,
                "start": after.span.start,
                "end": after.span.end,
                "finished_at": after.finished_at,
                "now": now,
            },
        )
        if written.rowcount != 1:
            raise WriteConflictError(f"{after.id} was changed between reading and writing")

    async def _record(self, before: Booking, after: Booking, actor: str, kind: BookingEventKind, now: datetime) -> None:
        data = {"start": after.span.start.isoformat(), "end": after.span.end.isoformat()}
        if before.span != after.span:
            data |= {"start_before": before.span.start.isoformat(), "end_before": before.span.end.isoformat()}
        await self._connection.execute(
            statement("record_booking"),
            {
                "id": after.id,
                "now": now,
                "actor": actor,
                "kind": kind,
                "before": before.status.value,
                "after": after.status.value,
                "reason_code": after.why.code.value,
                "reason": after.why.detail,
                "data": json.dumps(data),
            },
        )

    @asynccontextmanager
    async def _raced(self) -> AsyncIterator["_Race"]:
        """Undo what the block wrote when somebody else has a card, and say so; the transaction goes on."""
        race = _Race()
        savepoint = await self._connection.begin_nested()
        try:
            yield race
        except _LostRaceError:
            await savepoint.rollback()
            race.won = False
        except DBAPIError as error:
            await savepoint.rollback()
            if not _lost(error):
                raise
            race.won = False
        except BaseException:
            await savepoint.rollback()
            raise
        else:
            await savepoint.commit()


class _Race:
    """How the block went."""

    def __init__(self) -> None:
        self.won = True


def _lost(error: DBAPIError) -> bool:
    """Two that take each other's cards at once are told of a deadlock; the one that is ended has lost."""
    return CALENDAR_CONSTRAINT in str(error.orig) or getattr(error.orig, "sqlstate", None) == _DEADLOCK


def _times(booking: Booking) -> dict[str, Any]:
    return {"node": booking.wanted.node, "waits_until": booking.waits_until}


def _rows(ranges: bytes | None) -> list[Range]:
    return [] if ranges is None else [(start + _Y2K, end + _Y2K) for start, end in _RANGE.iter_unpack(ranges)]

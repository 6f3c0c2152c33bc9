"""A look at the calendar does what is due, and asks once where nothing is."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.statuses import BookingStatus, JobStatus
from reservation_core.usecases.bookings.cancel import cancel_booking
from reservation_core.usecases.bookings.waitlist import Waitlist
from reservation_core.usecases.keep_calendar import CalendarReport, keep_calendar
from reservation_core.usecases.nodes.update_inventory import update_inventory
from tests.clocks import START
from tests.integration.reservation_core.usecases.booking_world import HOUR, BookingWorld
from tests.integration.reservation_core.usecases.bookings.test_keep_bookings import running_within
from tests.integration.reservation_core.usecases.nodes.test_maintenance import GRACE, planned, wanted

NINE = START + 24 * HOUR
OFFER = timedelta(minutes=30)
NOTHING = CalendarReport(0, 0, 0, 0, 0)


class Counting:
    """A factory that counts what is opened, and whether each statement is a transaction of its own."""

    def __init__(self, uow: UnitOfWorkFactory) -> None:
        self._uow = uow
        self.opened: list[bool] = []

    @asynccontextmanager
    async def __call__(self, *, one_statement: bool = False) -> AsyncIterator[UnitOfWork]:
        self.opened.append(one_statement)
        async with self._uow(one_statement=one_statement) as uow:
            yield uow


async def look(bookings: BookingWorld, uow: UnitOfWorkFactory | None = None) -> CalendarReport:
    """One look, as the leader does it."""
    uow = uow or bookings.world.uow
    waitlist = Waitlist(uow, bookings.ids, OFFER)
    return await keep_calendar(uow, bookings.ids, bookings.keeping, waitlist, GRACE)


async def settled(bookings: BookingWorld) -> None:
    """Do what is due until there is nothing more."""
    while await look(bookings):
        pass


async def test_where_nothing_is_due_there_is_one_question(bookings: BookingWorld) -> None:
    counting = Counting(bookings.world.uow)
    assert await look(bookings, counting) == NOTHING
    await bookings.booked(NINE + HOUR, node="b")
    await planned(bookings, wanted(NINE + 2 * HOUR))
    await settled(bookings)
    assert await look(bookings, counting) == NOTHING
    assert counting.opened == [True, True]


async def test_bookings_begin_and_end(bookings: BookingWorld) -> None:
    made = await bookings.booked(NINE)
    await settled(bookings)
    await bookings.time.set(NINE)
    assert (await look(bookings)).changed == 1
    assert (await bookings.booking(made.id)).status is BookingStatus.ACTIVE
    await bookings.time.set(NINE + HOUR)
    assert (await look(bookings)).changed == 1
    assert (await bookings.booking(made.id)).status is BookingStatus.ENDED


async def test_what_runs_in_a_booking_that_is_over_ends(bookings: BookingWorld) -> None:
    made = await bookings.booked(NINE)
    await bookings.time.set(NINE)
    bookings.world.clock.at = NINE
    await settled(bookings)
    job_id = await running_within(bookings, made.id)
    await settled(bookings)
    # Only the job is late: of the booking itself nothing is due.
    await bookings.rows(
        "UPDATE reservations SET status = 'ended', finished_at = :now WHERE id = :id RETURNING id", now=NINE, id=made.id
    )
    assert (await look(bookings)).ended_jobs == 1
    assert (await bookings.world.row(job_id)).status is JobStatus.ENDING


async def test_windows_begin_and_end_and_take_in_what_joins(bookings: BookingWorld) -> None:
    world = bookings.world
    window = await planned(bookings)
    world.cluster.cards |= {"a": 3}
    await update_inventory(world.uow, world.cluster, world.clock)
    await look(bookings)
    assert len(await bookings.taken(window.id)) == 3
    for when in (NINE, NINE + 4 * HOUR):
        await bookings.time.set(when)
        assert (await look(bookings)).windows == 1
        assert await look(bookings) == NOTHING


async def test_who_waits_is_served(bookings: BookingWorld) -> None:
    full = await bookings.booked(NINE, gpus=2, nodes=2)
    first = await bookings.booked(NINE, wait=True, who=await bookings.person("bob"))
    await settled(bookings)
    async with bookings.world.uow() as uow:
        await cancel_booking(uow, bookings.world.who, full.id, "this", None)
    assert (await look(bookings)).served == 1
    assert (await bookings.booking(first.id)).status is BookingStatus.OFFERED


async def test_what_comes_in_for_who_is_disabled_is_cancelled(bookings: BookingWorld) -> None:
    job_id = await bookings.world.submitted()
    await bookings.rows("UPDATE users SET disabled_at = :now RETURNING id", now=START)
    assert (await look(bookings)).settled == 1
    assert (await bookings.world.row(job_id)).status is JobStatus.CANCELLED


@pytest.mark.parametrize("led", [True, False])
async def test_whether_anybody_leads_is_asked_by_the_databases_clock(bookings: BookingWorld, led: bool) -> None:
    async with bookings.world.uow() as uow:
        assert not await uow.calendar_due.is_led()
        await uow.planning.acquire("somebody", timedelta(seconds=3))
    await bookings.time.set(START + timedelta(seconds=2 if led else 4))
    async with bookings.world.uow(one_statement=True) as uow:
        assert await uow.calendar_due.is_led() is led

"""Rows are locked by whoever decides about them; what was read before a change is not written over it."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.changes import CancelRequested, ExtendRequested
from reservation_core.domain.errors import NotFoundError
from reservation_core.domain.jobs.lifecycle import decide
from reservation_core.domain.statuses import JobStatus
from reservation_core.usecases.bookings.cancel import cancel_booking
from reservation_core.usecases.carry_out import carry_out
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.jobs.extend import extend
from tests.clocks import START
from tests.integration.reservation_core.usecases.booking_world import HOUR, BookingWorld
from tests.waiting import eventually

_WAITS = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


async def waits_while(
    bookings: BookingWorld, first: Callable[[UnitOfWork], Awaitable[object]], second: Callable[[], Awaitable[object]]
) -> None:
    """What the second does is not done before the first has committed."""
    async with bookings.world.uow() as uow:
        await first(uow)
        task = asyncio.ensure_future(second())

        async def waits_or_is_done() -> bool:
            return task.done() or bool(await bookings.rows(_WAITS))

        await eventually(waits_or_is_done)
        assert not task.done()
    await task


async def test_two_who_decide_about_a_job_follow_each_other(bookings: BookingWorld) -> None:
    world = bookings.world
    job_id = await world.ran()

    async def second() -> None:
        async with world.uow() as uow:
            row = (await uow.reservations.lock([job_id]))[job_id]
            assert row.status is JobStatus.ENDING

    async def first(uow: UnitOfWork) -> None:
        await cancel(uow, world.who, job_id, None, world.clock.now())

    await waits_while(bookings, first, second)


async def test_a_row_that_has_changed_since_it_was_read_is_not_written(bookings: BookingWorld) -> None:
    world = bookings.world
    job_id = await world.ran()
    stale = await world.row(job_id)
    async with world.uow() as uow:
        await cancel(uow, world.who, job_id, None, world.clock.now())
    change = decide(stale, ExtendRequested("alice", HOUR, timedelta(hours=24)), world.clock.now())
    assert change is not None

    async def written() -> None:
        async with world.uow() as uow:
            await carry_out(uow, [change])

    with pytest.raises(Exception, match="0 of 1 reservations were still as they were read"):
        await written()
    assert (await world.row(job_id)).status is JobStatus.ENDING


async def test_no_plan_is_written_while_somebody_takes_time_from_a_booking(bookings: BookingWorld) -> None:
    world = bookings.world
    made = await bookings.booked(START + HOUR)
    planner = await world.planner()
    await planner.cycle()
    await world.submitted()

    async def first(uow: UnitOfWork) -> None:
        await cancel_booking(uow, world.who, made.id, "this", None)

    await waits_while(bookings, first, planner.cycle)


async def test_a_cancel_of_a_waiting_job_leaves_no_slot(bookings: BookingWorld) -> None:
    """Slots go with the row's change, in its transaction."""
    world = bookings.world
    await world.ran(gpus=2, nodes=2)
    job_id = await world.submitted()
    await world.plan(slots=True)
    count = "SELECT count(*) AS n FROM allocations WHERE reservation_id = :id AND planned"
    assert await bookings.rows(count, id=job_id) == [{"n": 1}]
    async with world.uow() as uow:
        row = (await uow.reservations.lock([job_id]))[job_id]
        change = decide(row, CancelRequested("alice", by_admin=False), world.clock.now())
        assert change is not None
        await carry_out(uow, [change])
    assert await bookings.rows(count, id=job_id) == [{"n": 0}]


async def test_whether_a_job_of_others_is_over_or_has_changed_is_not_told(bookings: BookingWorld) -> None:
    """Not even by another error than the one for what does not exist."""
    world = bookings.world
    bob = await bookings.person("bob")
    job_id = await world.submitted()
    async with world.uow() as uow:
        await cancel(uow, world.who, job_id, None, world.clock.now())
    for version in (None, 99):
        with pytest.raises(NotFoundError):
            async with world.uow() as uow:
                await cancel(uow, bob, job_id, version, world.clock.now())
        with pytest.raises(NotFoundError):
            async with world.uow() as uow:
                await extend(uow, bob, job_id, HOUR, version, 24 * HOUR, world.clock.now())

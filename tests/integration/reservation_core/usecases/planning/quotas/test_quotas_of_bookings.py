"""Quotas where bookings are concerned: what they count, when they may pass, and planners beside them."""

import asyncio
from datetime import timedelta

import pytest

from reservation_core.contracts.bookings import BookingChange
from reservation_core.domain.errors import NotBookableError
from reservation_core.domain.policy.limits import Relaxation
from reservation_core.domain.policy.nouns import RuleName, Scope
from reservation_core.domain.statuses import JobStatus
from reservation_core.usecases.bookings.change import change_booking
from tests.clocks import START
from tests.integration.reservation_core.usecases.booking_world import HOUR, MINUTE, BookingWorld
from tests.integration.reservation_core.usecases.planning.quotas.quota_world import ended, rule, statuses
from tests.waiting import eventually


async def test_a_booking_counts_while_a_job_would_run_and_not_before(bookings: BookingWorld) -> None:
    world = bookings.world
    await rule(world, max_gpus=2)
    await bookings.booked(START + 2 * HOUR, gpus=2)
    short = await world.submitted(duration=3600)
    long = await world.submitted(duration=3 * 3600)
    planner = await world.planner()
    await planner.cycle()
    assert await statuses(world, short, long) == [JobStatus.STARTING, JobStatus.QUEUED]


async def test_bookings_and_starts_at_the_same_time_stay_within_the_quota(bookings: BookingWorld) -> None:
    world = bookings.world
    await rule(world, max_gpus=1)
    for round_ in range(8):
        now = START + round_ * 2 * HOUR
        world.clock.at = now
        await bookings.time.set(now)
        planner = await world.planner()
        job = await world.submitted()
        book = bookings.booked(now, length=30 * MINUTE)
        _, booked = await asyncio.gather(planner.cycle(), book, return_exceptions=True)
        started = (await world.row(job)).status is JobStatus.STARTING
        assert isinstance(booked, NotBookableError) == started
        [held] = await bookings.rows(
            "SELECT count(*) AS n FROM allocations WHERE NOT planned AND upper(during) > :now", now=now
        )
        assert held["n"] == 1
        await bookings.rows(
            "UPDATE allocations SET held = false, released_at = :now WHERE released_at IS NULL RETURNING id", now=now
        )
        await bookings.rows(
            "UPDATE reservations SET status = CASE kind WHEN 'job' THEN 'failed' ELSE 'ended' END, finished_at = :now "
            "WHERE finished_at IS NULL RETURNING id",
            now=now,
        )
        await world.operate()


async def test_what_starts_soon_is_booked_beyond_the_quota(bookings: BookingWorld) -> None:
    relaxed = (Relaxation(2 * HOUR, frozenset({RuleName.MAX_GPUS})),)
    await rule(bookings.world, max_gpus=1, relaxed_if_starts_within=relaxed)
    await bookings.booked(START + HOUR, gpus=2)
    with pytest.raises(NotBookableError) as refused:
        await bookings.booked(START + 3 * HOUR, gpus=2)
    assert "max_gpus" in [broken.code for broken in refused.value.broken_rules]


async def test_a_booking_with_jobs_is_changed_beside_a_planner_that_locks_owners(bookings: BookingWorld) -> None:
    world = bookings.world
    made = await bookings.booked(START + HOUR)
    await world.submitted(booking_id=made.id)
    planner = await world.planner()

    async def a_lock_is_waited_for() -> bool:
        found = await bookings.rows(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return bool(found)

    async def changed() -> None:
        change = BookingChange.model_validate({"duration": 7200})
        async with world.uow() as uow:
            await change_booking(uow, world.who, made.id, change, None)

    # As starts do where a quota binds: the owners first, then the fence.
    async with world.uow() as uow:
        await uow.policies.lock_holders([world.who.user_id], ())
        change = asyncio.create_task(changed())
        await eventually(a_lock_is_waited_for)
        await uow.planning.publish_estimates(planner._epoch, [], START)
    await change
    assert (await bookings.booking(made.id)).span.length == 2 * HOUR


async def test_a_booking_does_not_take_what_its_owners_waiting_job_was_promised(bookings: BookingWorld) -> None:
    world = bookings.world
    await rule(world, Scope(user="alice"), max_gpus=2)
    world.who, alice = await bookings.person("bob"), world.who
    await world.started(gpus=2, duration=7200)
    his = await world.started(gpus=2, duration=600)
    world.who = alice
    job = await world.submitted(gpus=2, duration=7200)
    planner = await world.planner()
    await planner.cycle()
    await planner.give_slots()
    [(start, end, _), _] = await bookings.taken(job)
    assert start > START
    # There is room for both, but not within her quota.
    assert end > START + 2 * HOUR + 5 * MINUTE
    with pytest.raises(NotBookableError) as refused:
        await bookings.booked(START + 2 * HOUR + 5 * MINUTE, gpus=2)
    assert [broken.code for broken in refused.value.broken_rules] == ["max_gpus"]
    await bookings.booked(end + MINUTE - timedelta(seconds=end.second), gpus=2)
    await ended(bookings, his)
    await planner.cycle()
    assert await statuses(world, job) == [JobStatus.STARTING]

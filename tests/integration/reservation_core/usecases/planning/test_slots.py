"""Slots and promises on a real database: what is promised is kept from everybody else by the ledger itself."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from sqlalchemy.exc import IntegrityError

from reservation_core.domain.errors import (
    BookingNotUsableError,
    CalendarConflictError,
    NotBookableError,
    UnknownBookingError,
)
from reservation_core.domain.plan import PlacedGpu, PlannedSlot
from reservation_core.domain.policy.nouns import QueueOrder
from reservation_core.domain.statuses import JobStatus
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.jobs.extend import extend
from reservation_core.usecases.jobs.submit import submit
from reservation_core.usecases.planning.planner import Planner
from tests.clocks import START
from tests.integration.reservation_core.usecases.booking_world import BookingWorld
from tests.integration.reservation_core.usecases.planning.quotas.test_quotas import rule
from tests.integration.reservation_core.usecases.world import ALLOWANCE, LONGEST, World

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
WHOLE = {"gpus": 2, "nodes": 2}


async def plan(world: World, planner: Planner | None = None) -> Planner:
    """All that a planner has to do now."""
    planner = planner or await world.planner()
    for _ in range(20):
        outcome = await planner.cycle()
        more = await planner.give_slots()
        if not (outcome.more or outcome.started or outcome.messages or more):
            break
    await planner.publish_estimates()
    return planner


async def slot(world: World, job_id: str) -> tuple[datetime, datetime, int] | None:
    """Start, end and number of cards of a job's slot."""
    found = await world.sql(
        "SELECT lower(during) AS first, upper(during) AS last, count(*) AS cards FROM allocations "
        "WHERE reservation_id = :id AND planned GROUP BY during",
        id=job_id,
    )
    rows = found.all()
    if not rows:
        return None
    [row] = rows
    return row.first, row.last, row.cards


async def test_who_waits_has_cards_in_the_ledger_and_is_told_since_when(world: World) -> None:
    await rule(world, order=QueueOrder.ARRIVAL)
    runs = await world.ran(**WHOLE)
    first, second = await world.submitted(**WHOLE), await world.submitted()
    await plan(world)
    end = world.clock.now() + HOUR
    assert await slot(world, first) == (end, end + HOUR + ALLOWANCE, 4)
    then = end + HOUR + ALLOWANCE
    assert await slot(world, second) == (then, then + HOUR + ALLOWANCE, 1)
    views = [await world.view(job_id) for job_id in (first, second)]
    assert [view.estimated_start_at for view in views] == [end, then]
    assert [view.promised_start_at for view in views] == [end, then]
    assert [view.queue_position for view in views] == [1, 2]
    async with world.uow() as uow:
        await cancel(uow, world.who, runs, None, world.clock.now())
    await world.operate()
    planner = await plan(world)
    assert (await world.row(first)).status is JobStatus.STARTING
    assert await slot(world, first) is None
    # What came free moves the slots of the others; what was promised stays on record.
    moved = await slot(world, second)
    assert moved is not None
    assert moved[0] == world.clock.now() + HOUR + ALLOWANCE
    assert (await world.view(second)).promised_start_at == then
    assert (await world.view(first)).promised_start_at == end
    async with world.uow() as uow:
        await cancel(uow, world.who, second, None, world.clock.now())
    assert await slot(world, second) is None
    await plan(world, planner)


async def test_a_booking_over_a_slot_is_refused_by_the_ledger_and_one_beside_it_is_not(world: World) -> None:
    await world.ran(**WHOLE)
    first = await world.submitted(**WHOLE)
    await plan(world)
    other = await world.submitted(gpu_type="t4")
    found = await slot(world, first)
    assert found is not None
    start, end, _ = found

    async def promise(since: datetime, until: datetime) -> None:
        await world.sql(
            "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at) "
            "SELECT :id, 0, min(id), 0, tstzrange(:since, :until), false, :since FROM gpus",
            id=other,
            since=since,
            until=until,
        )

    with pytest.raises(IntegrityError, match="allocations_calendar"):
        await promise(end - SECOND, end + HOUR)
    with pytest.raises(IntegrityError, match="allocations_calendar"):
        await promise(start, start + SECOND)
    await promise(end, end + HOUR)


async def test_a_new_planner_knows_the_slots_whatever_part_of_the_line_it_reads(world: World) -> None:
    runs = await world.ran(**WHOLE)
    low = await world.submitted(**WHOLE)
    await plan(world)
    before = await slot(world, low)
    assert before is not None
    urgent = [await world.submitted(**WHOLE, priority=5) for _ in range(4)]
    world.rules = type(world.rules)(**{**{f: getattr(world.rules, f) for f in world.rules.__slots__}, "window": 2})
    await plan(world)
    assert await slot(world, low) == before
    async with world.uow() as uow:
        await cancel(uow, world.who, runs, None, world.clock.now())
    await world.operate()
    world.clock.at = before[0]
    await plan(world)
    # It starts in its slot, although others stand before it in line.
    assert (await world.row(low)).status is JobStatus.STARTING
    assert {(await world.row(job_id)).status for job_id in urgent} == {JobStatus.QUEUED}


async def test_an_extension_into_a_slot_names_who_was_promised_what_and_when(world: World) -> None:
    runs = await world.ran(**WHOLE)
    waits = await world.submitted(**WHOLE)
    await plan(world)
    with pytest.raises(CalendarConflictError, match=f"promised to {waits} of alice.*from 20.*Z on"):
        async with world.uow() as uow:
            await extend(uow, world.who, runs, HOUR, None, LONGEST, world.clock.now())
    assert (await world.kinds(runs))[-1] == "started"


async def test_who_asks_for_more_while_waiting_is_promised_anew(world: World) -> None:
    await rule(world, order=QueueOrder.ARRIVAL)
    await world.ran(**WHOLE)
    first, second = await world.submitted(**WHOLE), await world.submitted(**WHOLE)
    planner = await plan(world)
    async with world.uow() as uow:
        await extend(uow, world.who, first, HOUR, None, LONGEST, world.clock.now())
    assert await slot(world, first) is None
    await plan(world, planner)
    behind = await slot(world, second)
    assert behind is not None
    view = await world.view(first)
    # It was promised what was free beside the other; then the other moved up, and it after that.
    assert view.promised_start_at == START + 3 * HOUR + 2 * ALLOWANCE
    assert view.estimated_start_at == START + 2 * HOUR + ALLOWANCE
    assert behind[0] <= world.clock.now() + 2 * HOUR + ALLOWANCE
    assert (await slot(world, first) or (None, None, 0))[2] == 4


async def test_the_ledger_keeps_the_first_promise_whatever_a_planner_writes_later(world: World) -> None:
    await world.ran(**WHOLE)
    job_id = await world.submitted()
    await plan(world)
    first = (await world.view(job_id)).promised_start_at
    found = await slot(world, job_id)
    assert found is not None
    start, end, _ = found
    [gpu] = (await world.sql("SELECT gpu_id FROM allocations WHERE reservation_id = :id AND planned", id=job_id)).all()
    [lease] = await world.sql("SELECT epoch FROM planner_lease")
    for moved in (SECOND, HOUR):
        later = PlannedSlot(
            job_id, start + moved, end + moved, (PlacedGpu(gpu.gpu_id, "", 0, 0),), promised_at=start + moved
        )
        async with world.uow() as uow:
            assert await uow.planning.commit_slots(lease.epoch, [later], world.clock.now()) == {job_id}
        assert await slot(world, job_id) == (start + moved, end + moved, 1)
        assert (await world.view(job_id)).promised_start_at == first


async def test_a_slot_found_for_what_a_job_asked_before_is_not_written(world: World) -> None:
    await world.ran(gpus=2, nodes=2)
    job_id = await world.submitted()
    planner = await world.planner()
    await planner.cycle()
    async with world.uow() as uow:
        await extend(uow, world.who, job_id, HOUR, None, LONGEST, world.clock.now())
    await planner.give_slots()
    assert await slot(world, job_id) is None
    await plan(world, planner)
    found = await slot(world, job_id)
    assert found is not None
    assert found[1] - found[0] == 2 * HOUR + ALLOWANCE


async def test_a_promise_that_is_not_held_is_an_event_once_and_says_because_of_whom_in_the_record(
    bookings: BookingWorld,
) -> None:
    world = bookings.world
    runs = await world.ran(**WHOLE)
    waits = await world.submitted(**WHOLE)
    planner = await plan(world)
    for late in (SECOND, 3 * SECOND):
        await bookings.time.set(START + HOUR + late)
        world.clock.at = START + HOUR + late
        await plan(world, planner)
    events = [event for event in await world.events(waits) if event.kind == "start_promise_missed"]
    assert len(events) == 1
    assert events[0].data["late"] == [runs]
    assert runs not in events[0].data["because"]
    assert (await world.row(waits)).status is JobStatus.QUEUED


async def test_fifty_bookings_at_once_and_a_planner_give_no_card_twice(bookings: BookingWorld) -> None:
    world = bookings.world
    jobs = [await world.submitted(gpus=1 + n % 2) for n in range(20)]
    planner = await plan(world)

    async def book(number: int) -> bool:
        try:
            await bookings.booked(START + (1 + number % 12) * HOUR, gpus=1 + number % 2)
        except NotBookableError:
            return False
        return True

    async def keep_planning() -> None:
        for _ in range(10):
            await plan(world, planner)
            await asyncio.sleep(0)

    answers, _ = await asyncio.gather(asyncio.gather(*(book(number) for number in range(50))), keep_planning())
    assert any(answers)
    await plan(world, planner)
    assert {(await world.row(job)).status for job in jobs} <= {JobStatus.QUEUED, JobStatus.STARTING}
    for job in jobs:
        waits = (await world.row(job)).status is JobStatus.QUEUED
        assert (await slot(world, job) is not None) == waits
    twice = await bookings.rows(
        "SELECT a.id FROM allocations a JOIN allocations b "
        "ON a.gpu_id = b.gpu_id AND a.id < b.id AND a.during && b.during"
    )
    assert twice == []


# --- within a booking ---


async def test_jobs_of_a_booking_run_on_its_cards_in_its_time_and_end_with_it(bookings: BookingWorld) -> None:
    world = bookings.world
    start = START + HOUR
    booking = await bookings.booked(start, 2 * HOUR, gpus=2)
    inside = [await world.submitted(booking_id=booking.id) for _ in range(3)]
    planner = await plan(world)
    assert {(await world.row(job_id)).status for job_id in inside} == {JobStatus.QUEUED}
    assert [found and found[0] for found in [await slot(world, job_id) for job_id in inside]] == [
        start,
        start,
        start + HOUR + ALLOWANCE,
    ]
    await bookings.at(start)
    await plan(world, planner)
    assert [(await world.row(job_id)).status for job_id in inside] == [
        JobStatus.STARTING,
        JobStatus.STARTING,
        JobStatus.QUEUED,
    ]
    [third] = [await slot(world, job_id) for job_id in inside[2:]]
    # It asked for an hour; the booking is over before.
    assert third == (start + HOUR + ALLOWANCE, start + 2 * HOUR, 1)
    booked = await bookings.rows("SELECT gpu_id FROM allocations WHERE reservation_id = :id", id=booking.id)
    used = await bookings.rows("SELECT gpu_id FROM allocations WHERE booking_id = :id AND held", id=booking.id)
    assert sorted(row["gpu_id"] for row in used) == sorted(row["gpu_id"] for row in booked)


async def test_more_jobs_in_a_booking_than_a_batch_all_get_slots_and_the_rest_when_there_is_room(
    bookings: BookingWorld,
) -> None:
    """Five of ten minutes fit into its hour, each with two more to start in."""
    world = bookings.world
    world.rules = replace(world.rules, slot_batch=2)
    booking = await bookings.booked(START + HOUR, HOUR)
    inside = [await world.submitted(booking_id=booking.id, duration=600) for _ in range(8)]
    planner = await plan(world)
    ends = [START + HOUR + (number + 1) * timedelta(minutes=12) for number in range(5)]
    slots = [await slot(world, job_id) for job_id in inside]
    assert [None if found is None else found[1] for found in slots] == [*ends, None, None, None]
    async with world.uow() as uow:
        await cancel(uow, world.who, inside[1], None, world.clock.now())
    await plan(world, planner)
    slots = [await slot(world, job_id) for job_id in (*inside[:1], *inside[2:])]
    assert [None if found is None else found[1] for found in slots] == [*ends, None, None]


async def test_only_a_booking_of_ones_own_that_is_not_over_and_large_enough_takes_a_job(bookings: BookingWorld) -> None:
    world = bookings.world
    booking = await bookings.booked(START + HOUR, gpus=2)
    bob = await bookings.person("bob")
    others = await bookings.booked(START + HOUR, who=bob)

    async def refusal(**fields: object) -> object:
        [answer] = await submit(world.uow, [world.new(**fields)], world.clock.now())
        return answer.refusal

    assert await refusal(booking_id=booking.id, gpus=2) is None
    assert isinstance(await refusal(booking_id="bkg-none"), UnknownBookingError)
    assert isinstance(await refusal(booking_id=others.id), UnknownBookingError)
    assert isinstance(await refusal(booking_id=booking.id, gpus=3), BookingNotUsableError)
    assert isinstance(await refusal(booking_id=booking.id, gpu_type="t4"), BookingNotUsableError)
    assert isinstance(await refusal(booking_id=booking.id, key="k", nodes=2), BookingNotUsableError)
    # A key is not used up by a refusal.
    new = world.new(booking_id=booking.id, key="k")
    assert [outcome.refusal for outcome in await submit(world.uow, [new], world.clock.now())] == [None]
    await bookings.at(START + 3 * HOUR)
    assert isinstance(await refusal(booking_id=booking.id), BookingNotUsableError)


async def test_a_batch_of_slots_is_over_after_its_time_and_the_next_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock goes on by itself here, by 0.6 ms at each look at it: there is no time for a third job."""
    await world.started(**WHOLE)
    jobs = [await world.submitted() for _ in range(5)]
    world.rules = replace(world.rules, slot_time=timedelta(milliseconds=2))
    planner = await world.planner()
    await planner.cycle()
    steady = world.clock.now

    def hurried() -> datetime:
        world.clock.go_on(timedelta(milliseconds=0.6))
        return steady()

    with monkeypatch.context() as patched:
        patched.setattr(world.clock, "now", hurried)
        assert await planner.give_slots()
    given = [job for job in jobs if await slot(world, job) is not None]
    assert given == jobs[:2]
    await plan(world, planner)
    assert [await slot(world, job) is not None for job in jobs] == [True] * 5


async def test_a_start_that_would_be_over_before_it_begins_is_planned_again(bookings: BookingWorld) -> None:
    """The database's clock is far ahead of the planner's: the job goes on waiting, and starts when they agree."""
    world = bookings.world
    job = await world.submitted()
    await bookings.time.go_on(timedelta(days=2))
    planner = await world.planner()
    for _ in range(2):
        outcome = await planner.cycle()
        assert (outcome.conflict, outcome.started) == (True, 0)
        assert (await world.row(job)).status is JobStatus.QUEUED
    world.clock.go_on(timedelta(days=2))
    assert (await planner.cycle()).started == 1


async def test_a_missed_start_names_a_step_of_the_clock_since_its_promise(world: World) -> None:
    await world.ran(**WHOLE)
    waits = await world.submitted(**WHOLE)
    planner = await plan(world)
    await world.sql("UPDATE ledger_clock SET stepped_at = clock_timestamp() + interval '1 s', stepped_by_s = 300")
    await world.sql("UPDATE start_promises SET promised_start_at = promised_start_at - interval '20 years'")
    world.clock.go_on(2 * HOUR)
    await plan(world, planner)
    [missed] = [event for event in await world.events(waits) if event.kind == "start_promise_missed"]
    assert "clock stepped by 300 s" in missed.data["because"]

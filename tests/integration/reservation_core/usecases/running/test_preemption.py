"""Preemptible jobs in the ledger: what they keep for sure, for whom they make room, and how they wait again."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from sqlalchemy.exc import IntegrityError

from reservation_core.contracts.queue_messages import PodOperation
from reservation_core.domain.errors import NotBookableError
from reservation_core.domain.jobs.preemption import RENEWED_EVERY, needs_of
from reservation_core.domain.model import ASKED_WITHIN, PodPhase
from reservation_core.domain.policy.nouns import Scope
from reservation_core.domain.statuses import BookingStatus, JobStatus, ReasonCode
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.jobs.extend import extend
from reservation_core.usecases.running.preempt import PreemptionReport, preempt
from tests.clocks import START
from tests.integration.reservation_core.usecases.booking_world import HOUR, MINUTE, BookingWorld
from tests.integration.reservation_core.usecases.planning.quotas.test_project_quotas import rule
from tests.integration.reservation_core.usecases.planning.test_shares import has
from tests.integration.reservation_core.usecases.world import ALLOWANCE, LONGEST, World, pod

AT_ONCE = timedelta(0)
SIGNAL = {"signal": "USR1", "before": 300}
NEEDS = needs_of(AT_ONCE)


async def look(world: BookingWorld, when: datetime | None = None) -> PreemptionReport:
    if when is not None:
        await world.at(when)
    return await preempt(world.world.uow, world.world.clock, AT_ONCE)


async def gone(world: World, job_id: str, attempt: int = 1) -> list[PodOperation]:
    """Its pods are ended, and are gone."""
    row = await world.row(job_id)
    for rank in range(row.nodes):
        name = pod(job_id, rank, attempt)
        await world.see(world.cluster.show(name, PodPhase.FINISHED, started_at=row.started_at, exit_code=0))
    return await world.operate()


async def promised(world: World, job_id: str) -> datetime | None:
    return (await world.view(job_id)).promised_start_at


async def test_it_makes_room_for_a_waiting_job_and_goes_on_afterwards(bookings: BookingWorld) -> None:
    world = bookings.world
    yielding = await world.ran(gpus=2, nodes=2, preemptible=True, end_signal=SIGNAL, duration=8 * 3600)
    place = (await world.row(yielding)).seq
    assert (await look(bookings)).asked == 0
    end = START + 5 * MINUTE + NEEDS
    assert [row[1] for row in await bookings.taken(yielding)] == [end] * 4

    needed = await world.submitted(gpus=1)
    await world.plan(slots=True)
    assert await promised(world, needed) == end
    assert (await look(bookings)).asked == 1
    row = await world.row(yielding)
    assert (row.status, row.reason.code) == (JobStatus.RUNNING, ReasonCode.PREEMPTED)
    assert [one.op for one in await world.operate()] == ["signal"]
    assert world.cluster.signals == [(f"{yielding}-1-{rank}", "USR1") for rank in (0, 1)]
    assert (await look(bookings, START + 5 * MINUTE - timedelta(seconds=1))).asked == 0
    assert (await look(bookings, START + 5 * MINUTE)).asked == 1
    assert (await world.row(yielding)).status is JobStatus.ENDING
    await gone(world, yielding)
    row = await world.row(yielding)
    assert (row.status, row.seq, row.preemption.times, row.exit_code) == (JobStatus.QUEUED, place, 1, None)

    await world.plan(slots=True)
    assert (await world.row(needed)).status is JobStatus.STARTING
    assert (await world.row(yielding)).status is JobStatus.QUEUED
    assert "start_promise_missed" not in await world.kinds(needed)
    assert await promised(world, yielding) is None


async def test_it_keeps_its_gpus_for_the_time_that_it_names(bookings: BookingWorld) -> None:
    world = bookings.world
    yielding = await world.ran(gpus=2, nodes=2, preemptible=True, min_runtime=1800)
    needed = await world.submitted(gpus=2)
    await world.plan(slots=True)
    assert await promised(world, needed) == START + 30 * MINUTE + ASKED_WITHIN
    assert (await look(bookings, START + 30 * MINUTE - timedelta(seconds=1))).asked == 0
    assert (await look(bookings, START + 30 * MINUTE)).asked == 1
    await gone(world, yielding)
    await world.plan()
    assert (await world.row(needed)).status is JobStatus.STARTING


async def test_its_range_is_renewed_while_nobody_needs_the_gpus(bookings: BookingWorld) -> None:
    world = bookings.world
    yielding = await world.ran(preemptible=True, duration=120)
    ends = []
    for _ in range(6):
        assert (await look(bookings)).asked == 0
        [(_, end, _)] = await bookings.taken(yielding)
        assert bookings.time.at < end <= bookings.time.at + NEEDS
        assert (await world.row(yielding)).range_end == end
        ends.append(end)
        await bookings.at(bookings.time.at + RENEWED_EVERY)
    assert ends == sorted(ends)
    assert ends[-1] == START + timedelta(seconds=120)


async def test_a_slot_keeps_a_range_from_being_renewed(bookings: BookingWorld) -> None:
    """Nobody asks here: only the statement that renews looks. The range of another job is renewed."""
    world = bookings.world
    for _ in range(2):
        await world.ran(gpus=2, preemptible=True)
    await look(bookings)
    await world.submitted(gpus=1)
    await world.plan(slots=True)
    await bookings.at(START + RENEWED_EVERY * 1.5)
    async with world.uow() as uow:
        assert await uow.leases.renew(world.clock.now(), NEEDS, RENEWED_EVERY, AT_ONCE, 100) == 1


async def test_a_booking_lends_its_gpus_until_it_begins(bookings: BookingWorld) -> None:
    world = bookings.world
    booking = await bookings.booked(START + HOUR, gpus=2, nodes=2)
    long = await world.submitted(gpus=2, duration=2 * 3600)
    lent = await world.submitted(gpus=2, duration=2 * 3600, preemptible=True, min_runtime=1800)
    too_long = await world.submitted(gpus=2, duration=2 * 3600, preemptible=True, min_runtime=3600)
    await world.plan(slots=True)
    assert [(await world.row(job)).status for job in (long, lent, too_long)] == [
        JobStatus.QUEUED, JobStatus.STARTING, JobStatus.QUEUED,
    ]  # fmt: skip
    await world.operate()
    await world.see(world.cluster.show(pod(lent), PodPhase.RUNNING, started_at=world.clock.now()))
    await look(bookings, START + 40 * MINUTE)
    assert (await look(bookings, START + HOUR - NEEDS - timedelta(seconds=1))).asked == 0
    assert (await look(bookings, START + HOUR - NEEDS + timedelta(seconds=1))).asked == 1
    await gone(world, lent)
    await bookings.at(START + HOUR)
    assert (await bookings.booking(booking.id)).status == "active"
    assert all(not over for _, _, over in await bookings.taken(booking.id))


async def test_a_booking_that_begins_now_takes_the_gpus_of_those_that_lose_least(bookings: BookingWorld) -> None:
    world = bookings.world
    older = await world.ran(gpus=2, preemptible=True)
    await bookings.at(START + 10 * MINUTE)
    younger = await world.ran(gpus=2, preemptible=True)
    await look(bookings, START + 12 * MINUTE)
    booking = await bookings.booked(START + 12 * MINUTE)
    assert booking.status is BookingStatus.CONFIRMED
    assert [(await world.row(job)).status for job in (older, younger)] == [JobStatus.RUNNING, JobStatus.ENDING]
    assert (await look(bookings)).asked == 0
    within = await world.submitted(gpus=1, booking_id=booking.id, duration=600)
    await look(bookings, START + 12 * MINUTE + timedelta(seconds=1))
    assert (await bookings.booking(booking.id)).status is BookingStatus.ACTIVE
    await world.plan()
    assert (await world.row(within)).status is JobStatus.QUEUED
    await gone(world, younger)
    await world.plan()
    assert (await world.row(within)).status is JobStatus.STARTING
    assert (await world.row(younger)).status is JobStatus.QUEUED
    assert (await world.row(younger)).preemption.times == 1


async def test_a_booking_that_begins_now_waits_for_a_short_signal_and_takes_none_with_a_long_one(
    bookings: BookingWorld,
) -> None:
    world = bookings.world
    long = await world.ran(gpus=2, preemptible=True, end_signal={"signal": "USR1", "before": 61})
    short = await world.ran(gpus=2, preemptible=True, end_signal={"signal": "USR1", "before": 30})
    await look(bookings, START + 5 * MINUTE)
    booking = await bookings.booked(START + 5 * MINUTE, gpus=2)
    assert [(await world.row(job)).preemption.asked_at is not None for job in (long, short)] == [False, True]
    assert [one.op for one in await world.operate()] == ["signal"]
    assert (await look(bookings, START + 5 * MINUTE + timedelta(seconds=29))).asked == 0
    assert (await look(bookings, START + 5 * MINUTE + timedelta(seconds=30))).asked == 1
    await gone(world, short)
    assert {over for _, _, over in await bookings.taken(booking.id)} == {False}
    with pytest.raises(NotBookableError):
        await bookings.booked(START + 5 * MINUTE, gpus=2)
    assert (await world.row(long)).status is JobStatus.RUNNING


async def test_a_booking_that_begins_now_leaves_jobs_their_min_runtime_and_others_their_slots(
    bookings: BookingWorld,
) -> None:
    world = bookings.world
    kept = await world.ran(gpus=2, preemptible=True, min_runtime=1800)
    free = await world.ran(gpus=2, preemptible=True)
    await look(bookings)
    waiting = await world.submitted(gpus=2)
    await world.plan(slots=True)
    start = await promised(world, waiting)
    for wait in (False, True):  # a request leaves the waitlist at its start
        with pytest.raises(NotBookableError):
            await bookings.booked(START, gpus=2, wait=wait)
    assert [(await world.row(job)).status for job in (kept, free)] == [JobStatus.RUNNING] * 2
    assert await promised(world, waiting) == start


async def test_without_promises_the_first_in_the_queue_is_made_room_for(bookings: BookingWorld) -> None:
    world = bookings.world
    world.rules = replace(world.rules, promises=0)
    yielding = await world.ran(gpus=2, nodes=2, preemptible=True)
    await look(bookings)
    needed = [await world.submitted(gpus=1) for _ in range(2)]
    await world.plan(slots=True)
    assert [await promised(world, job) is not None for job in needed] == [True, False]
    assert (await look(bookings)).asked == 1
    await gone(world, yielding)
    await bookings.at(START + MINUTE)
    await world.plan(slots=True)
    assert [(await world.row(job)).status for job in needed] == [JobStatus.STARTING] * 2
    last = await world.submitted(gpus=2, nodes=2)
    await world.plan(slots=True)
    assert await promised(world, last) is None


async def test_it_counts_for_no_quota(bookings: BookingWorld) -> None:
    world = bookings.world
    await rule(world, Scope(), max_gpus=1)
    async with world.uow() as uow:
        policy = (await uow.policies.current()).policy
    yielding = world.new(gpus=2, nodes=1, preemptible=True, policy=policy).reservation
    assert yielding.preemption.preemptible
    free = await world.ran(gpus=2, preemptible=True)
    own = await world.submitted(gpus=1)
    second = await world.submitted(gpus=1)
    await world.plan()
    assert [(await world.row(job)).status for job in (free, own, second)] == [
        JobStatus.RUNNING, JobStatus.STARTING, JobStatus.QUEUED,
    ]  # fmt: skip
    spent = await bookings.rows("SELECT * FROM given_back")
    await look(bookings)
    async with world.uow() as uow:
        holdings = await uow.policies.held_by_all(world.clock.now(), promised=True)
    assert {holding.reservation_id for holding in holdings} == {own}
    assert spent == []
    for job in (free, await world.submitted(gpus=2, preemptible=True)):
        async with world.uow() as uow:
            await extend(uow, world.who, job, HOUR, None, LONGEST, world.clock.now())
        assert (await world.row(job)).duration == 2 * HOUR


async def test_of_two_the_one_that_loses_least_makes_room(bookings: BookingWorld) -> None:
    world = bookings.world
    older = await world.ran(gpus=2, preemptible=True)
    await bookings.at(START + 10 * MINUTE)
    younger = await world.ran(gpus=2, preemptible=True)
    await look(bookings, START + 12 * MINUTE)
    await world.submitted(gpus=2)
    await world.plan(slots=True)
    assert (await look(bookings)).asked == 1
    assert [(await world.row(job)).status for job in (older, younger)] == [JobStatus.RUNNING, JobStatus.ENDING]


async def test_a_start_that_failed_is_tried_as_often_after_preemptions(bookings: BookingWorld) -> None:
    """They are no starts that failed: only those count towards the most."""
    world = bookings.world
    job = await world.ran(gpus=2, nodes=2, preemptible=True)
    await world.submitted(gpus=2, nodes=2, duration=60)
    await world.plan(slots=True)
    await look(bookings)
    await gone(world, job)
    row = await world.row(job)
    assert (row.attempt - row.retried - row.preemption.times, row.attempt) == (0, 1)


async def test_a_job_is_signalled_before_its_end_once(bookings: BookingWorld) -> None:
    world = bookings.world
    job = await world.ran(end_signal=SIGNAL, duration=3600)
    assert (await look(bookings, START + 55 * MINUTE - timedelta(seconds=1))).signalled == 0
    assert (await look(bookings, START + 55 * MINUTE)).signalled == 1
    assert (await look(bookings)).signalled == 0
    assert [one.op for one in await world.operate()] == ["signal"]
    assert world.cluster.signals == [(f"{job}-1-0", "USR1")]
    assert (await world.row(job)).status is JobStatus.RUNNING


async def test_a_hole_that_is_too_short_for_what_it_keeps_stays_empty(bookings: BookingWorld) -> None:
    world = bookings.world
    await bookings.booked(START + ALLOWANCE + 10 * MINUTE, gpus=2, nodes=2)
    short = await world.submitted(preemptible=True, min_runtime=595)
    long = await world.submitted(preemptible=True, min_runtime=600)
    await world.plan(slots=True)
    assert (await world.row(short)).status is JobStatus.STARTING
    assert (await world.row(long)).status is JobStatus.QUEUED


@pytest.mark.parametrize(
    "change",
    [
        "preempted_at = now()",
        "signalled_at = now()",
        "min_runtime = interval '2 hours'",
        "preemptible = false",
        "end_signal = NULL",
        "end_signal_before = interval '2 hours'",
        "preemptions = -1",
    ],
)
async def test_the_database_keeps_the_terms(world: World, change: str) -> None:
    job = await world.submitted(preemptible=True, min_runtime=60, end_signal=SIGNAL)
    with pytest.raises(IntegrityError):
        await world.sql(f"UPDATE reservations SET {change} WHERE id = :id", id=job)


async def test_of_two_beside_a_job_that_asks_for_cpus_the_younger_makes_room(bookings: BookingWorld) -> None:
    """Neither has a GPU that is needed, and there are enough CPUs for one of them."""
    world = bookings.world
    await world.sql("UPDATE gpus SET node_id = 1, index = index + 2 WHERE node_id = 2")
    await has(world)
    older = await world.ran(gpus=1, preemptible=True)
    await bookings.at(START + MINUTE)
    younger = await world.ran(gpus=1, preemptible=True)
    await look(bookings)
    needed = await world.submitted(gpus=1, resources={"cpus": 10})
    await world.plan(slots=True)
    assert (await world.row(needed)).status is JobStatus.QUEUED
    assert (await look(bookings)).asked == 1
    assert [(await world.row(job)).status for job in (older, younger)] == [JobStatus.RUNNING, JobStatus.ENDING]
    await gone(world, younger)
    await bookings.at(START + 2 * MINUTE)
    await world.plan()
    assert (await world.row(needed)).status is JobStatus.STARTING


async def test_a_job_that_has_most_cpus_of_a_node_makes_room_for_one_on_another_gpu(bookings: BookingWorld) -> None:
    world = bookings.world
    await has(world)
    greedy = await world.ran(gpus=1, nodes=2, preemptible=True, resources={"cpus": 13})
    await look(bookings)
    needed = await world.submitted(gpus=1)
    await world.plan(slots=True)
    assert (await world.row(needed)).status is JobStatus.QUEUED
    assert (await look(bookings, START + timedelta(seconds=1))).asked == 1
    await gone(world, greedy)
    await world.plan()
    assert (await world.row(needed)).status is JobStatus.STARTING


async def test_a_range_that_can_not_be_renewed_keeps_no_other_from_that(bookings: BookingWorld) -> None:
    """A node has become smaller than what its jobs have."""
    world = bookings.world
    await has(world)
    jobs = [await world.ran(gpus=2, preemptible=True, resources={"cpus": 13}) for _ in range(2)]
    await look(bookings)
    node = (await world.cards(jobs[0]))[0].node
    await world.sql("UPDATE nodes SET cpu_milli = 8000 WHERE name = :name", name=node)
    await bookings.at(START + RENEWED_EVERY * 1.5)
    assert (await look(bookings)).renewed == 1
    assert [(await world.row(job)).status for job in jobs] == [JobStatus.RUNNING] * 2


async def test_its_runs_before_the_last_do_not_count_as_waiting(bookings: BookingWorld) -> None:
    world = bookings.world
    job = await world.ran(gpus=2, nodes=2, preemptible=True)
    await world.submitted(gpus=2, nodes=2, duration=60)
    await world.plan(slots=True)
    await look(bookings, START + HOUR)
    await gone(world, job)
    async with world.uow() as uow:
        await cancel(uow, world.who, job, None, world.clock.now())
    async with world.uow() as uow:
        [ended] = await uow.measurements.ended(0, await uow.measurements.newest_event(START + 2 * HOUR), 10)
    assert (ended.first_started_at, ended.started_at) == (START, None)

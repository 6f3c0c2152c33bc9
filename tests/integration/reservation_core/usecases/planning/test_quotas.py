"""Quotas where jobs start: who is over one waits aside and stops nobody, and nothing gets by, however it is timed."""

import asyncio
from datetime import timedelta

import pytest

from reservation_core.contracts.bookings import BookingChange, BookingCreate
from reservation_core.domain.errors import NotBookableError, NotPermittedError
from reservation_core.domain.model import JobStatus, PodPhase, ReasonCode
from reservation_core.domain.policy.limits import NO_POLICY, QueueOrder, Relaxation, RuleName, Rules, Scope
from reservation_core.usecases.bookings.book import book
from reservation_core.usecases.bookings.change import change_booking
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.jobs.extend import extend
from reservation_core.usecases.planning.planner import Planner
from tests.clocks import START
from tests.integration.reservation_core.usecases.booking_world import HOUR, MINUTE, BookingWorld
from tests.integration.reservation_core.usecases.world import World, pod
from tests.waiting import eventually


async def rule(world: World, scope: Scope = Scope(), **fields: object) -> None:  # noqa: B008
    async with world.uow() as uow:
        await uow.policies.replace_rule(scope, Rules(**fields), by="root", from_file=False, now=world.clock.now())  # type: ignore[arg-type]


async def statuses(world: World, *jobs: str) -> list[JobStatus]:
    return [(await world.row(job)).status for job in jobs]


async def ended(bookings: BookingWorld, job: str, pods: int = 1) -> None:
    """A minute later its pods run, finish and go."""
    world = bookings.world
    await world.operate()
    await bookings.time.set(world.clock.go_on(MINUTE))
    for rank in range(pods):
        await world.see(world.cluster.show(pod(job, rank), PodPhase.RUNNING, started_at=world.clock.now()))
    for rank in range(pods):
        await world.see(
            world.cluster.show(pod(job, rank), PodPhase.FINISHED, exit_code=0, finished_at=world.clock.now())
        )
    await world.operate()
    for rank in range(pods):
        await world.see(world.cluster.show(pod(job, rank), PodPhase.GONE))
    assert (await world.row(job)).status is JobStatus.SUCCEEDED


async def again(planner: Planner) -> None:
    """All that a planner does in a second; what it finds for slots starts in them."""
    await planner.cycle()
    await planner.give_slots()
    await planner.cycle()
    await planner.publish_estimates()


async def test_over_ones_quota_one_waits_aside_and_others_pass(bookings: BookingWorld) -> None:
    world = bookings.world
    await rule(world, max_gpus=2)
    mine = [await world.submitted() for _ in range(3)]
    world.who, alice = await bookings.person("bob"), world.who
    his = await world.submitted()
    world.who = alice
    planner = await world.planner()
    await again(planner)
    assert await statuses(world, *mine, his) == [
        JobStatus.STARTING,
        JobStatus.STARTING,
        JobStatus.QUEUED,
        JobStatus.STARTING,
    ]
    view = await world.view(mine[2])
    assert view.reservation.reason.code is ReasonCode.QUOTA_REACHED
    assert view.reservation.reason.detail.startswith(
        "Asked for: 1 GPU while 2 are held at that time; the limit is 2 at once"
    )
    assert view.queue_position == 1
    # There is a card for it, but her quota is used until then.
    [(end, _, _)] = await bookings.taken(mine[2])
    assert [time_range[1] for time_range in await bookings.taken(mine[0])] == [end]
    assert view.estimated_start_at == view.promised_start_at == end
    # One of hers ends: the next starts, and not sooner.
    await ended(bookings, mine[0])
    await again(planner)
    assert await statuses(world, mine[2]) == [JobStatus.STARTING]


async def test_who_is_held_back_is_promised_the_first_time_that_the_quota_allows(bookings: BookingWorld) -> None:
    world = bookings.world
    await rule(world, order=QueueOrder.ARRIVAL)
    await rule(world, Scope(user="alice"), max_gpus=2)
    first = await world.submitted(gpus=2)
    held_back = await world.submitted(gpus=2)
    small = await world.submitted()
    booked = await bookings.booked(START + 2 * HOUR + 4 * MINUTE)
    await again(await world.planner())
    [(end, then, _), _] = await bookings.taken(held_back)
    assert {time_range[1] for time_range in await bookings.taken(first)} == {end}
    # Beside the second there is no room for the third, nor for two GPUs beside the booking; for one there is.
    assert then == booked.span.start
    assert [time_range[0] for time_range in await bookings.taken(small)] == [then]
    for job in (held_back, small):
        view = await world.view(job)
        assert view.reservation.reason.code is ReasonCode.QUOTA_REACHED
        assert view.estimated_start_at == view.promised_start_at


async def test_the_most_that_may_run_is_never_passed_however_many_wait(bookings: BookingWorld) -> None:
    world = bookings.world
    await rule(world, order=QueueOrder.ARRIVAL)
    await rule(world, Scope(user="alice", gpu_type="h100"), max_gpus=3)
    jobs = [await world.submitted(gpus=2), *[await world.submitted() for _ in range(5)]]
    planner = await world.planner()
    for _ in range(4):
        await again(planner)
    found = await statuses(world, *jobs)
    assert found == [JobStatus.STARTING] * 2 + [JobStatus.QUEUED] * 4
    # A larger rule lets them in: the planner sees it by itself.
    await rule(world, Scope(user="alice", gpu_type="h100"), max_gpus=4)
    await again(planner)
    assert (await statuses(world, *jobs))[2] is JobStatus.STARTING


async def test_without_the_rule_everybody_is_let_in_again(bookings: BookingWorld) -> None:
    world = bookings.world
    await rule(world, max_gpus=0)
    # It was accepted before there was a rule.
    job = await world.submitted()
    planner = await world.planner()
    await again(planner)
    view = await world.view(job)
    assert view.reservation.reason.code is ReasonCode.QUOTA_REACHED
    # No time would do.
    assert view.estimated_start_at is None
    async with world.uow() as uow:
        await uow.policies.delete_rules([Scope()])
    await planner.cycle()
    assert await statuses(world, job) == [JobStatus.STARTING]


async def test_a_held_back_job_that_is_cancelled_does_not_come_back(bookings: BookingWorld) -> None:
    world = bookings.world
    await rule(world, max_gpus=0)
    job = await world.submitted()
    planner = await world.planner()
    await planner.cycle()
    async with world.uow() as uow:
        await cancel(uow, world.who, job, None, world.clock.now())
    await planner.cycle()
    assert planner._picture is not None
    assert planner._picture.estimate_waits(START, 10) == []
    async with world.uow() as uow:
        await uow.policies.delete_rules([Scope()])
    await planner.cycle()
    assert job not in planner._picture.common.queue.jobs


async def test_a_booking_counts_while_a_job_would_run_and_not_before(bookings: BookingWorld) -> None:
    world = bookings.world
    await rule(world, max_gpus=2)
    await bookings.booked(START + 2 * HOUR, gpus=2)
    short = await world.submitted(duration=3600)
    long = await world.submitted(duration=3 * 3600)
    planner = await world.planner()
    await planner.cycle()
    assert await statuses(world, short, long) == [JobStatus.STARTING, JobStatus.QUEUED]


async def test_gpu_hours_of_the_week_bound_what_starts(bookings: BookingWorld) -> None:
    world = bookings.world
    # With the time that a start may take, an hour's job is allocated 62 minutes.
    await rule(world, max_gpu_hours_per_week=2.5)
    jobs = [await world.submitted() for _ in range(3)]
    planner = await world.planner()
    await planner.cycle()
    assert await statuses(world, *jobs) == [JobStatus.STARTING, JobStatus.STARTING, JobStatus.QUEUED]
    # What a job did not need comes back.
    await ended(bookings, jobs[0])
    await again(planner)
    assert await statuses(world, jobs[2]) == [JobStatus.STARTING]


async def test_a_booking_made_behind_the_planners_back_is_seen_as_jobs_start(
    bookings: BookingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = bookings.world
    await rule(world, max_gpus=2)
    planner = await world.planner()
    await planner.cycle()
    planner._quota._every = HOUR  # what it knows is old from now on
    await bookings.booked(START, gpus=2)
    job = await world.submitted()
    await planner.cycle()
    assert await statuses(world, job) == [JobStatus.QUEUED]
    await again(planner)
    assert await statuses(world, job) == [JobStatus.QUEUED]
    assert (await world.view(job)).reservation.reason.code is ReasonCode.QUOTA_REACHED


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


async def test_a_start_waits_for_a_booking_of_its_owner_that_is_being_made(bookings: BookingWorld) -> None:
    world = bookings.world
    await rule(world, max_gpus=1)
    planner = await world.planner()
    job = await world.submitted()
    wanted = BookingCreate.model_validate({"gpus": 1, "start": START.isoformat(), "duration": 3600})

    async def a_lock_is_waited_for() -> bool:
        found = await bookings.rows(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return bool(found)

    async with world.uow() as uow:
        await book(uow, world.who, wanted, bookings.ids)
        cycle = asyncio.create_task(planner.cycle())
        await eventually(a_lock_is_waited_for)
        assert not cycle.done()
    assert not (await cycle).conflict
    assert await statuses(world, job) == [JobStatus.QUEUED]


async def test_who_was_promised_a_start_loses_it_to_ones_own_quota_only_when_it_comes(bookings: BookingWorld) -> None:
    world = bookings.world
    blocker = await world.started(gpus=2, nodes=2)
    job = await world.submitted()
    planner = await world.planner()
    await planner.cycle()
    await planner.give_slots()
    assert len(await bookings.taken(job)) == 1
    await rule(world, max_gpus=4, scope=Scope(user="bob"))
    await rule(world, max_gpus=0, scope=Scope(user="alice"))
    await ended(bookings, blocker, pods=2)
    await again(planner)
    [(slot, _, _)] = await bookings.taken(job)
    await bookings.at(slot)
    await again(planner)
    assert await statuses(world, job) == [JobStatus.QUEUED]
    assert await bookings.taken(job) == []
    await again(planner)
    assert (await world.view(job)).reservation.reason.code is ReasonCode.QUOTA_REACHED


async def test_a_job_that_could_never_be_is_refused_as_it_is_submitted(world: World) -> None:
    await rule(world, max_gpus=2, max_duration=2 * HOUR, max_gpu_hours_per_week=3, priority=-1)
    async with world.uow() as uow:
        policy = (await uow.policies.current()).policy
    with pytest.raises(NotPermittedError) as refused:
        world.new(policy=policy, gpus=3, duration=10 * 3600)
    assert [broken.code for broken in refused.value.broken_rules] == [
        "max_gpus",
        "max_gpu_hours_per_week",
        "max_duration",
        "priority",
    ]
    world.new(policy=policy, gpus=2, duration=3600, priority=-1)
    world.new(policy=NO_POLICY, gpus=3, duration=10 * 3600)


async def test_an_extension_is_held_to_the_policy(bookings: BookingWorld) -> None:
    world = bookings.world
    job = await world.ran()
    queued = await world.submitted()
    await bookings.booked(START + 3 * HOUR, gpus=2)

    async def extended(job_id: str, hours: int) -> list[str]:
        try:
            async with world.uow() as uow:
                await extend(uow, world.who, job_id, hours * HOUR, None, 240 * HOUR, world.clock.now())
        except NotPermittedError as refused:
            return [broken.code for broken in refused.broken_rules]
        return []

    await rule(world, max_gpus=2, max_duration=5 * HOUR)
    assert await extended(job, 5) == ["max_duration"]
    assert await extended(queued, 5) == ["max_duration"]
    # While it lasts she will hold two others.
    assert await extended(job, 3) == ["max_gpus"]
    assert await extended(job, 1) == []
    assert await extended(queued, 1) == []
    await rule(world, max_gpu_hours_per_week=5)
    # Two hours are the job's by now, and two the booking's.
    assert await extended(job, 2) == ["max_gpu_hours_per_week"]
    assert await extended(job, 1) == []


async def test_a_rule_may_raise_a_users_priority(world: World) -> None:
    await rule(world, Scope(user="alice"), priority=5)
    async with world.uow() as uow:
        policy = (await uow.policies.current()).policy
    assert world.new(policy=policy, priority=5, as_user=True).reservation.priority == 5
    with pytest.raises(NotPermittedError):
        world.new(policy=policy, priority=6, as_user=True)


async def test_what_starts_soon_is_booked_beyond_the_quota(bookings: BookingWorld) -> None:
    relaxed = (Relaxation(2 * HOUR, frozenset({RuleName.MAX_GPUS})),)
    await rule(bookings.world, max_gpus=1, relaxed_if_starts_within=relaxed)
    await bookings.booked(START + HOUR, gpus=2)
    with pytest.raises(NotBookableError) as refused:
        await bookings.booked(START + 3 * HOUR, gpus=2)
    assert "max_gpus" in [broken.code for broken in refused.value.broken_rules]


async def test_a_planner_without_rules_reads_nothing_of_them(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    planner: Planner = await world.planner()
    job = await world.submitted()
    await planner.cycle()
    assert not planner._quota.binds
    assert planner._quota._names == {}
    assert (await world.row(job)).status is JobStatus.STARTING
    assert timedelta(0) == planner._quota._every


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


async def test_an_extension_is_held_to_the_rules_of_the_type_that_the_job_was_given(bookings: BookingWorld) -> None:
    world = bookings.world
    job = await world.ran()
    assert (await world.row(job)).gpu_type is None
    await rule(world, Scope(gpu_type="h100"), max_gpu_hours_per_week=2)
    with pytest.raises(NotPermittedError) as refused:
        async with world.uow() as uow:
            await extend(uow, world.who, job, 3 * HOUR, None, 240 * HOUR, world.clock.now())
    assert [broken.code for broken in refused.value.broken_rules] == ["max_gpu_hours_per_week"]

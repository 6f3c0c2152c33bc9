"""Quotas where jobs start: who is over one waits aside and stops nobody, and nothing gets by, however it is timed."""

import asyncio
from datetime import timedelta

import pytest

from reservation_core.contracts.bookings import BookingCreate
from reservation_core.domain.errors import NotPermittedError
from reservation_core.domain.policy.limits import NO_POLICY
from reservation_core.domain.policy.nouns import QueueOrder, Scope
from reservation_core.domain.statuses import JobStatus, ReasonCode
from reservation_core.usecases.bookings.book import book
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.jobs.extend import extend
from reservation_core.usecases.planning.planner import Planner
from tests.clocks import START
from tests.integration.reservation_core.usecases.booking_world import HOUR, MINUTE, BookingWorld
from tests.integration.reservation_core.usecases.planning.quotas.quota_world import again, ended, rule, statuses
from tests.integration.reservation_core.usecases.world import World
from tests.waiting import eventually


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
        "Asked for: 1 GPU beside 2 of the same user now; the limit is 2 at once"
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
    booked = await bookings.booked(START, gpus=2)
    job = await world.submitted()
    await planner.cycle()
    assert await statuses(world, job) == [JobStatus.QUEUED]
    # The first estimate counts the booking, too.
    await planner.publish_estimates()
    view = await world.view(job)
    assert (view.reservation.reason.code, view.estimated_start_at) == (ReasonCode.QUOTA_REACHED, booked.span.end)
    await again(planner)
    assert await statuses(world, job) == [JobStatus.QUEUED]
    assert (await world.view(job)).reservation.reason.code is ReasonCode.QUOTA_REACHED


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


async def test_a_planner_without_rules_reads_nothing_of_them(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    planner: Planner = await world.planner()
    job = await world.submitted()
    await planner.cycle()
    assert not planner._quota.binds
    assert planner._quota._names == {}
    assert (await world.row(job)).status is JobStatus.STARTING
    assert timedelta(0) == planner._quota._every


async def test_an_extension_is_held_to_the_rules_of_the_type_that_the_job_was_given(bookings: BookingWorld) -> None:
    world = bookings.world
    job = await world.ran()
    assert (await world.row(job)).gpu_type is None
    await rule(world, Scope(gpu_type="h100"), max_gpu_hours_per_week=2)
    with pytest.raises(NotPermittedError) as refused:
        async with world.uow() as uow:
            await extend(uow, world.who, job, 3 * HOUR, None, 240 * HOUR, world.clock.now())
    assert [broken.code for broken in refused.value.broken_rules] == ["max_gpu_hours_per_week"]

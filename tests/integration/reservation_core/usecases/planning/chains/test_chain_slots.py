"""Jobs that wait for others are promised a start that follows from the ends of these."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from reservation_core.domain.errors import CalendarConflictError
from reservation_core.domain.jobs.asked_dependencies import Dependency, DependencyWhen
from reservation_core.domain.jobs.dependencies import waiting_reason
from reservation_core.domain.model import PodPhase
from reservation_core.domain.plan import Need, PlacedGpu, PlannedSlot
from reservation_core.domain.statuses import JobStatus, ReasonCode
from reservation_core.usecases.jobs.dependencies import known_dependencies
from reservation_core.usecases.jobs.extend import extend
from reservation_core.usecases.planning.planner import Planner
from tests.integration.reservation_core.usecases.jobs.test_dependencies import dependent, end, settle_all
from tests.integration.reservation_core.usecases.planning.test_slots import slot
from tests.integration.reservation_core.usecases.world import ALLOWANCE, LONGEST, World, pod

SUCCEEDED, ENDED, FAILED, STARTED = DependencyWhen
HOUR = timedelta(hours=1)


async def settled(planner: Planner) -> None:
    """The planner has decided all that it can."""
    await planner.cycle()
    while await planner.give_slots():
        await planner.cycle()


async def promised(world: World, job_id: str) -> datetime | None:
    return (await world.view(job_id)).promised_start_at


async def ends(world: World, job_id: str) -> datetime:
    """The end of a job's slot, or of the GPUs that it has."""
    found = await world.sql(
        "SELECT max(upper(during)) FROM allocations WHERE reservation_id = :id AND released_at IS NULL", id=job_id
    )
    return found.scalar_one()


async def begins(world: World, job_id: str) -> datetime:
    """The start of a job's slot."""
    found = await world.sql(
        "SELECT min(lower(during)) FROM allocations WHERE reservation_id = :id AND planned", id=job_id
    )
    return found.scalar_one()


async def test_a_chain_is_promised_its_starts_at_once(world: World) -> None:
    first = await world.ran()
    second = await dependent(world, {first: SUCCEEDED})
    third = await dependent(world, {second: ENDED})
    last = await dependent(world, {first: SUCCEEDED, third: FAILED})
    await settle_all(world)
    await world.plan(slots=True)
    for job, before in ((second, first), (third, second), (last, third)):
        assert await begins(world, job) == await ends(world, before)
        view = await world.view(job)
        assert view.promised_start_at == view.estimated_start_at == await begins(world, job)


async def test_a_job_says_which_of_the_others_decides_about_its_start(world: World) -> None:
    short, long = await world.ran(duration=1800), await world.ran(duration=7200)
    both = await dependent(world, {short: SUCCEEDED, long: ENDED})
    await world.plan(slots=True)
    view = await world.view(both)
    assert view.estimated_start_at == await ends(world, long)
    assert view.reservation.reason.detail.startswith(f"It waits for {long} to end and for 1 other job.")
    assert [one.job for one in view.after] == [long, short]
    async with world.uow() as uow:
        known = await known_dependencies(uow, world.who, [Dependency(short, SUCCEEDED), Dependency(long, ENDED)])
    assert waiting_reason(known).detail.startswith(f"It waits for {long} to end")


async def test_a_start_decides_once_its_pods_may_run(world: World) -> None:
    """The slot of a job after a start also leaves the pods of the other one time for starting."""
    await world.ran(gpus=2, duration=3600 - 60)
    long = await world.ran(gpus=2, duration=3600)
    later = await world.submitted(gpus=2, duration=7200)
    both = await dependent(world, {long: ENDED, later: STARTED})
    await world.plan(slots=True)
    assert await begins(world, later) < await ends(world, long) < await begins(world, later) + ALLOWANCE
    view = await world.view(both)
    assert view.estimated_start_at == await begins(world, later) + ALLOWANCE
    assert view.reservation.reason.detail.startswith(f"It waits for {later} to start and for 1 other job.")
    assert [one.job for one in view.after] == [later, long]
    async with world.uow() as uow:
        known = await known_dependencies(uow, world.who, [Dependency(long, ENDED), Dependency(later, STARTED)])
    assert waiting_reason(known).detail.startswith(f"It waits for {later} to start")


async def test_a_chain_whose_first_job_ends_early_goes_on_at_once(world: World) -> None:
    first = await world.ran(gpus=2)
    second = await dependent(world, {first: SUCCEEDED}, gpus=2)
    planner = await world.planner()
    await settled(planner)
    assert await slot(world, second) is not None
    world.clock.go_on(timedelta(minutes=10))
    await end(world, first)
    await settle_all(world)
    await planner.cycle()
    assert (await world.row(second)).status is JobStatus.STARTING


async def test_an_extension_promises_the_jobs_behind_it_other_starts(world: World) -> None:
    first = await world.ran()
    second = await dependent(world, {first: SUCCEEDED})
    third = await dependent(world, {second: SUCCEEDED})
    planner = await world.planner()
    await settled(planner)
    async with world.uow() as uow:
        await extend(uow, world.who, first, HOUR, None, LONGEST, world.clock.now())
    await settled(planner)
    assert await begins(world, second) == await promised(world, second) == await ends(world, first)
    assert await begins(world, third) == await promised(world, third) == await ends(world, second)
    assert "start_promise_missed" not in await world.kinds(second) + await world.kinds(third)


async def test_an_extension_leaves_starts_that_come_after_the_new_end_and_all_behind_them(world: World) -> None:
    first, long = await world.ran(), await world.ran(duration=3 * 3600)
    kept = [await dependent(world, {first: SUCCEEDED, long: ENDED})]
    kept += [await dependent(world, {kept[0]: when}) for when in (FAILED, STARTED)]
    put_off = await dependent(world, {first: ENDED})
    also = await dependent(world, {kept[0]: ENDED, put_off: SUCCEEDED})
    planner = await world.planner()
    await settled(planner)
    before = [(await begins(world, job), await promised(world, job)) for job in kept]
    async with world.uow() as uow:
        await extend(uow, world.who, first, HOUR, None, LONGEST, world.clock.now())
    assert [(await begins(world, job), await promised(world, job)) for job in kept] == before
    assert [await promised(world, job) for job in (put_off, also)] == [None, None]
    await settled(planner)
    assert [(await begins(world, job), await promised(world, job)) for job in kept] == before
    assert await begins(world, put_off) == await promised(world, put_off) == await ends(world, first)
    assert await promised(world, also) is not None


async def test_a_job_that_overruns_costs_the_one_behind_it_its_promise_and_no_more(world: World) -> None:
    first = await world.ran()
    second = await dependent(world, {first: SUCCEEDED})
    planner = await world.planner()
    await settled(planner)
    start = await begins(world, second)
    for _ in range(5):
        world.clock.go_on(start - world.clock.now() + timedelta(seconds=3))
        await settled(planner)
        assert await begins(world, second) is None
        start = world.clock.now() + timedelta(minutes=1)
    await end(world, first)
    await settle_all(world)
    await settled(planner)
    assert (await world.row(second)).status is JobStatus.STARTING
    [missed] = [event for event in await world.events(second) if event.kind == "start_promise_missed"]
    assert missed.data["because"] == f"It waits for {first} to end, and when that will be is not known."


async def test_what_becomes_impossible_gives_its_slot_up(world: World) -> None:
    first = await world.ran()
    second = await dependent(world, {first: FAILED})
    third = await dependent(world, {second: SUCCEEDED})
    planner = await world.planner()
    await settled(planner)
    assert await begins(world, third) == await ends(world, second)
    await end(world, first)
    await settle_all(world)
    await settled(planner)
    for job in (second, third):
        assert (await world.row(job)).reason.code is ReasonCode.DEPENDENCY_FAILED
        assert await begins(world, job) is None
    assert planner._picture is not None
    assert planner._picture.common.ledger.slots == {}


async def test_a_retry_of_the_first_job_moves_the_chain_and_says_so(world: World) -> None:
    first = await world.ran(retries={"max": 1})
    second = await dependent(world, {first: SUCCEEDED})
    planner = await world.planner()
    await settled(planner)
    promise = await promised(world, second)
    assert promise == await ends(world, first)
    world.clock.go_on(timedelta(minutes=30))
    await world.see(world.cluster.show(pod(first), PodPhase.FINISHED, exit_code=1))
    await world.operate()
    await world.see(world.cluster.show(pod(first), PodPhase.GONE))
    await settled(planner)
    await settled(planner)
    assert (await world.row(first)).status is JobStatus.STARTING
    assert await begins(world, second) == await ends(world, first)
    assert await promised(world, second) == promise
    [missed] = [event for event in await world.events(second) if event.kind == "start_promise_missed"]
    assert first in missed.data["because"]


async def test_a_job_after_a_start_is_promised_when_the_other_runs_at_the_latest(world: World) -> None:
    runs = await world.ran(gpus=2, nodes=2)
    first = await world.submitted(gpus=2)
    second = await dependent(world, {first: STARTED}, gpus=2)
    planner = await world.planner()
    await settled(planner)
    assert await begins(world, first) == await ends(world, runs)
    assert await begins(world, second) == await promised(world, second) == await begins(world, first) + ALLOWANCE


async def test_a_job_that_waits_for_fewer_others_is_promised_a_start(world: World) -> None:
    first, other = await world.ran(), await world.ran(preemptible=True)
    second = await dependent(world, {first: SUCCEEDED, other: ENDED})
    planner = await world.planner()
    await settle_all(world)
    await settled(planner)
    assert await promised(world, second) is None
    await end(world, other)
    await settle_all(world)
    await settled(planner)
    assert await begins(world, second) == await promised(world, second) == await ends(world, first)


async def test_a_new_planner_knows_the_chain(world: World) -> None:
    first = await world.ran()
    second = await dependent(world, {first: SUCCEEDED})
    third = await dependent(world, {second: SUCCEEDED})
    await world.plan(slots=True)
    before = await begins(world, third)
    planner = await world.planner()
    await settled(planner)
    assert await begins(world, third) == before
    world.clock.go_on(timedelta(minutes=10))
    await end(world, first)
    await settle_all(world)
    await settled(planner)
    assert (await world.row(second)).status is JobStatus.STARTING
    assert await begins(world, third) == await ends(world, second) < before


async def test_the_ledger_refuses_a_slot_that_begins_too_early(world: World) -> None:
    first = await world.ran()
    second = await dependent(world, {first: SUCCEEDED})
    third = await dependent(world, {second: SUCCEEDED})
    await world.plan(slots=True)
    now = world.clock.now()
    async with world.uow() as uow:
        epoch = await uow.planning.acquire("test", timedelta(hours=1))
    assert epoch is not None
    free = "SELECT max(id) FROM gpus WHERE id NOT IN (SELECT gpu_id FROM allocations)"
    gpu = (await world.sql(free)).scalar_one()
    placed = (PlacedGpu(gpu, "any", 0, 0),)
    start = await begins(world, third)
    early = PlannedSlot(third, start - timedelta(seconds=1), start + HOUR, placed, promised_at=start, follows=True)
    with pytest.raises(CalendarConflictError) as refused:
        async with world.uow() as uow:
            await uow.planning.commit_slots(epoch, [early], now)
    assert f"before the end (or start) of {second}" in str(refused.value.__cause__)
    async with world.uow() as uow:
        assert await uow.planning.commit_slots(epoch, [replace(early, start=start)], now) == {third}
    # Where nothing is known of the other's end, there is no slot behind it.
    await world.sql("DELETE FROM allocations WHERE reservation_id = :id", id=second)
    with pytest.raises(CalendarConflictError):
        async with world.uow() as uow:
            await uow.planning.commit_slots(epoch, [replace(early, start=start + 9 * HOUR, end=start + 10 * HOUR)], now)


async def test_dry_runs_know_of_the_chains_that_have_slots(world: World) -> None:
    """What these follow makes no room, and they take none of the slots that others may have."""
    first = await world.ran()
    second = await dependent(world, {first: SUCCEEDED})
    await dependent(world, {await world.ran(preemptible=True): SUCCEEDED})
    await world.plan(slots=True)
    async with world.uow() as uow:
        found, others, _, _ = await uow.planning.undecided(
            ALLOWANCE, unpromised=10, slotted=10, dependants=10, others=0, nearest=None
        )
    assert [(job.id, job.needs) for job in found.dependants] == [(second, (Need(first, by_start=False),))]
    assert others == 0

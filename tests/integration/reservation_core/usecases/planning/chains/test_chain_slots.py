"""Jobs that wait for others are promised a start that follows from the ends of these."""

from datetime import datetime, timedelta

from reservation_core.domain.jobs.asked_dependencies import DependencyWhen
from reservation_core.domain.model import JobStatus
from reservation_core.usecases.jobs.extend import extend
from reservation_core.usecases.planning.planner import Planner
from tests.integration.reservation_core.usecases.jobs.test_dependencies import dependent, end, settle_all
from tests.integration.reservation_core.usecases.planning.test_slots import slot
from tests.integration.reservation_core.usecases.world import LONGEST, World

SUCCEEDED, ENDED, FAILED, STARTED = DependencyWhen
HOUR = timedelta(hours=1)


async def settled(planner: Planner) -> None:
    """The planner has decided all that it can."""
    await planner.cycle()
    while await planner.give_slots():
        pass


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


async def test_a_job_that_overruns_costs_the_one_behind_it_its_promise_and_no_more(world: World) -> None:
    first = await world.ran()
    second = await dependent(world, {first: SUCCEEDED})
    planner = await world.planner()
    await settled(planner)
    start = await begins(world, second)
    for _ in range(5):
        world.clock.go_on(start - world.clock.now() + timedelta(seconds=3))
        await settled(planner)
        moved = await begins(world, second)
        assert moved >= world.clock.now()
        start = moved
    [missed] = [event for event in await world.events(second) if event.kind == "start_promise_missed"]
    assert missed.data["because"] == f"It waits for {first} to end, which comes later than was planned."

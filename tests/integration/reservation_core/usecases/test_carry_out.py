"""What wakes whom: the channels that a change marks for after its commit."""

from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.jobs.extend import extend
from tests.integration.reservation_core.usecases.world import LONGEST, World


async def woken_by_cancel(world: World, job_id: str) -> set[Channel]:
    async with world.uow() as uow:
        await cancel(uow, world.who, job_id, None, world.clock.now())
        return set(uow.wakes)  # type: ignore[attr-defined]


async def test_the_end_of_what_waits_wakes_the_planner_and_who_reads_events(world: World) -> None:
    assert await woken_by_cancel(world, await world.submitted()) == {Channel.EVENTS, Channel.GPU_JOBS}


async def test_the_end_of_what_runs_wakes_who_ends_pods(world: World) -> None:
    assert await woken_by_cancel(world, await world.ran()) == {Channel.EVENTS, Channel.POD_OPERATIONS}


async def test_a_later_end_wakes_the_planner_and_who_moves_deadlines(world: World) -> None:
    job_id = await world.ran()
    async with world.uow() as uow:
        await extend(uow, world.who, job_id, LONGEST / 24, None, LONGEST, world.clock.now())
        assert uow.wakes == {Channel.EVENTS, Channel.POD_OPERATIONS, Channel.GPU_JOBS}  # type: ignore[attr-defined]

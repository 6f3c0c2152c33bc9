"""Jobs that wait for others which start or end late."""

from datetime import datetime, timedelta

import pytest

from reservation_core.domain.jobs.asked_dependencies import DependencyWhen
from reservation_core.domain.model import PodPhase
from reservation_core.domain.statuses import JobStatus
from tests.integration.reservation_core.usecases.jobs.test_dependencies import dependent
from tests.integration.reservation_core.usecases.planning.chains.test_chain_slots import begins, ends, settled
from tests.integration.reservation_core.usecases.world import ALLOWANCE, World, pod

SUCCEEDED = DependencyWhen.SUCCEEDED
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
WHOLE = {"gpus": 2, "nodes": 2}


async def is_over(world: World, job: str) -> None:
    """A job on both nodes ends, and its pods with it."""
    now = world.clock.now()
    for rank in (0, 1):
        its = pod(job, rank)
        await world.see(world.cluster.show(its, PodPhase.FINISHED, started_at=now, finished_at=now, exit_code=0))
    await world.operate()
    for rank in (0, 1):
        await world.see(world.cluster.show(pod(job, rank), PodPhase.GONE))


async def go_to(world: World, moment: datetime) -> None:
    world.clock.go_on(moment - world.clock.now())


@pytest.mark.parametrize("watched", [True, False])
async def test_no_job_is_ended_early_for_one_that_waits_for_its_end(world: World, *, watched: bool) -> None:
    """Whether the planner looked while the start was late, or not before it was possible."""
    runs = await world.ran(**WHOLE)
    first = await world.submitted(**WHOLE)
    planner = await world.planner()
    await settled(planner)
    second = await dependent(world, {first: SUCCEEDED}, **WHOLE)
    third = await dependent(world, {second: SUCCEEDED}, **WHOLE)
    await settled(planner)
    assert await begins(world, second) == await ends(world, first)
    await go_to(world, await begins(world, first) + 20 * MINUTE)
    if watched:
        await settled(planner)
        assert await begins(world, second) >= world.clock.now() + HOUR
    await is_over(world, runs)
    for _ in range(3):
        await settled(planner)
    row = await world.row(first)
    assert row.status is JobStatus.STARTING
    assert row.range_end == world.clock.now() + HOUR + ALLOWANCE
    assert await begins(world, second) == await ends(world, first)
    assert await begins(world, third) == await ends(world, second)
    assert (await world.kinds(second)).count("start_promise_missed") == 1

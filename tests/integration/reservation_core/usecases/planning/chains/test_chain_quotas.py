"""Slots of jobs that wait for others, within the quotas of their owners."""

from datetime import timedelta

from reservation_core.domain.jobs.asked_dependencies import DependencyWhen
from tests.integration.reservation_core.usecases.jobs.test_dependencies import dependent
from tests.integration.reservation_core.usecases.planning.chains.test_chain_slots import begins, ends, settled
from tests.integration.reservation_core.usecases.planning.quotas.test_quotas import rule
from tests.integration.reservation_core.usecases.world import World


async def test_a_new_planner_keeps_quotas_with_the_slots_of_jobs_whose_owner_has_nothing_else(world: World) -> None:
    await rule(world, max_gpus=3)
    first = await world.ran()
    runs = await world.ran(gpus=2, duration=3 * 3600)
    planner = await world.planner()
    await settled(planner)
    second = await dependent(world, {first: DependencyWhen.SUCCEEDED}, gpus=2)
    await settled(planner)
    assert await begins(world, second) == await ends(world, runs)


async def test_a_job_that_comes_later_waits_for_what_the_slot_leaves_of_the_quota(world: World) -> None:
    await rule(world, max_gpus=2)
    first = await world.ran()
    planner = await world.planner()
    await settled(planner)
    second = await dependent(world, {first: DependencyWhen.SUCCEEDED}, gpus=2)
    await settled(planner)
    assert await begins(world, second) == await ends(world, first)
    later = await world.submitted(duration=7200)
    world.clock.go_on(timedelta(seconds=5))
    await settled(planner)
    assert await begins(world, later) == await ends(world, second)

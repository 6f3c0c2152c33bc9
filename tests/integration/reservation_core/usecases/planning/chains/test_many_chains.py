"""More jobs that wait for others than are read at once."""

from datetime import timedelta

import pytest

from reservation_core.adapters.postgres.planning import planning
from reservation_core.domain.jobs.asked_dependencies import DependencyWhen
from tests.integration.reservation_core.usecases.jobs.test_dependencies import dependent
from tests.integration.reservation_core.usecases.planning.chains.test_chain_slots import begins, ends, settled
from tests.integration.reservation_core.usecases.world import World


async def test_a_new_planner_knows_all_that_have_a_slot(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "MOST_DEPENDANTS", 1)
    first = await world.ran()
    planner = await world.planner()
    await settled(planner)
    behind = []
    for _ in range(3):
        behind.append(await dependent(world, {first: DependencyWhen.SUCCEEDED}, duration=7200))
        await settled(planner)
    assert [await begins(world, job) is not None for job in behind] == [True] * 3
    planner = await world.planner()
    await settled(planner)
    world.clock.go_on(await ends(world, first) - world.clock.now() + timedelta(minutes=30))
    await settled(planner)
    for job in behind:
        assert await begins(world, job) is None


@pytest.mark.parametrize(("many", "promised"), [(100, True), (101, False)])
async def test_nothing_is_promised_after_very_many_jobs(world: World, many: int, promised: bool) -> None:
    """Neither as it comes, nor where a new planner reads everything."""
    first = await world.ran(duration=3600)
    needed = [first, *[await dependent(world, {first: DependencyWhen.ENDED}) for _ in range(many - 1)]]
    planner = await world.planner()
    await settled(planner)
    last = await dependent(world, dict.fromkeys(needed, DependencyWhen.ENDED))
    await settled(planner)
    assert (await begins(world, last) is not None) is promised
    await settled(await world.planner())
    assert (await begins(world, last) is not None) is promised

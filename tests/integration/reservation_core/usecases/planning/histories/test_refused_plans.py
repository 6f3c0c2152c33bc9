"""Random histories on a real ledger: what the planner decides is not refused again and again."""

import random
from contextlib import suppress
from datetime import timedelta

import pytest

from reservation_core.domain.errors import CalendarConflictError
from reservation_core.domain.model import PodPhase
from reservation_core.domain.statuses import JobStatus
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.jobs.extend import extend
from tests.integration.reservation_core.usecases.planning.histories.random_histories import (
    CYCLES,
    RandomHistory,
    has_amounts,
    pass_time,
    refusals,
)
from tests.integration.reservation_core.usecases.planning.test_cpu_jobs import HOUR
from tests.integration.reservation_core.usecases.planning.test_slots import slot
from tests.integration.reservation_core.usecases.world import LONGEST, World, pod

__all__ = ["refusals"]


@pytest.mark.parametrize(("gpus", "cpus"), [(0, 4), (1, 7)])
async def test_a_pod_that_overruns_keeps_no_slot_from_others(
    world: World, refusals: list[str], gpus: int, cpus: int
) -> None:
    await has_amounts(world)
    for _ in range(2):
        await world.ran(gpus=gpus, resources={"cpus": cpus})
    await pass_time(world, HOUR + timedelta(minutes=5))
    behind = await world.submitted(gpus=gpus, resources={"cpus": cpus})
    others = await world.submitted(gpus=2, nodes=2)
    planner = await world.planner()
    for _ in range(CYCLES):
        await planner.cycle()
        await planner.give_slots()
    assert refusals == []
    assert await slot(world, behind) is not None
    assert await slot(world, others) is not None or (await world.row(others)).status is JobStatus.STARTING


@pytest.mark.parametrize("seed", [3, 11])
async def test_a_plan_that_was_refused_is_another_one_when_all_was_read_anew(
    world: World, refusals: list[str], seed: int
) -> None:
    await has_amounts(world)
    await CpuHistory(world, await world.planner(), refusals, random.Random(seed)).play(60)


class CpuHistory(RandomHistory):
    """Jobs that ask for CPUs, most of them without GPUs."""

    async def submit(self) -> str:
        chance = self.chance
        return await self.world.submitted(
            gpus=chance.choice([0, 0, 0, 1]),
            duration=chance.choice([600, 1800, 3600, 7200]),
            resources={"cpus": chance.choice([1, 2, 3, 4])},
            priority=chance.choice([0, 0, 0, 1]),
        )

    async def check(self) -> None:
        await self.planner.publish_estimates()

    async def go_on(self, job: str) -> bool:
        world, chance = self.world, self.chance
        row, now = await world.row(job), world.clock.now()
        match row.status:
            case JobStatus.STARTING:
                if chance.random() < 0.8:
                    await world.see(world.cluster.show(pod(job), PodPhase.RUNNING, started_at=now))
            case JobStatus.RUNNING:
                drawn, over = chance.random(), row.range_end is not None and row.range_end <= now
                if drawn < (0.5 if over else 0.1):
                    finished = {"started_at": now, "finished_at": now, "exit_code": 0}
                    await world.see(world.cluster.show(pod(job), PodPhase.FINISHED, **finished))
                    return False
                if drawn < 0.25 and not over:
                    with suppress(CalendarConflictError):
                        async with world.uow() as uow:
                            longer = timedelta(minutes=chance.choice([5, 30]))
                            await extend(uow, world.who, job, longer, None, LONGEST, now)
            case JobStatus.QUEUED:
                if chance.random() < 0.05:
                    async with world.uow() as uow:
                        await cancel(uow, world.who, job, None, now)
                    return False
            case _:
                return False
        return True

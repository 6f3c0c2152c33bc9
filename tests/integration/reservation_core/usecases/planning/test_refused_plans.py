"""Random histories on a real ledger: what the planner decides is not refused again and again."""

import random
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from reservation_core.adapters.postgres.planning.planning import Planning
from reservation_core.domain.errors import CalendarConflictError
from reservation_core.domain.model import JobStatus, PodPhase
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.jobs.extend import extend
from tests.integration.reservation_core.usecases.planning.test_cpu_jobs import GIB, HOUR, keeps
from tests.integration.reservation_core.usecases.planning.test_slots import slot
from tests.integration.reservation_core.usecases.world import LONGEST, World, pod

LATER = timedelta(milliseconds=5)
"""So much later than the planner's decision the database writes it."""
CYCLES = 5


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the ledger refused."""
    found: list[str] = []

    def watched(write: Callable[..., Any]) -> Callable[..., Any]:
        async def tried(*arguments: Any, **named: Any) -> Any:
            try:
                return await write(*arguments, **named)
            except CalendarConflictError as error:
                found.append(f"{write.__name__}: {error.__cause__}")
                raise

        return tried

    for name in ("commit", "commit_slots"):
        monkeypatch.setattr(Planning, name, watched(getattr(Planning, name)))
    return found


async def set_the_ledgers_clock(world: World) -> None:
    at = (world.clock.now() + LATER).isoformat()
    said = f"LANGUAGE sql VOLATILE AS $$ SELECT CAST('{at}' AS timestamptz) $$"
    await world.sql(f"CREATE OR REPLACE FUNCTION ledger_now() RETURNS timestamptz {said}")
    await world.sql(f"CREATE OR REPLACE FUNCTION ledger_time(counted timestamptz) RETURNS timestamptz {said}")


async def pass_time(world: World, by: timedelta) -> None:
    world.clock.go_on(by)
    await set_the_ledgers_clock(world)


async def has_amounts(world: World) -> None:
    await set_the_ledgers_clock(world)
    await keeps(world, 4000)
    await world.sql("UPDATE nodes SET cpu_milli = 8000, memory_bytes = :memory", memory=64 * GIB)


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
    chance = random.Random(seed)
    await has_amounts(world)
    planner = await world.planner()
    jobs: list[str] = []
    for _ in range(60):
        await pass_time(world, timedelta(seconds=chance.choice([0, 7, 61, 600, 1800])))
        for _ in range(chance.randint(0, 3)):
            request = {
                "gpus": chance.choice([0, 0, 0, 1]),
                "duration": chance.choice([600, 1800, 3600, 7200]),
                "resources": {"cpus": chance.choice([1, 2, 3, 4])},
                "priority": chance.choice([0, 0, 0, 1]),
            }
            jobs.append(await world.submitted(**request))
        for _ in range(CYCLES):
            await pass_time(world, timedelta(seconds=1))
            before = len(refusals)
            await planner.cycle()
            await planner.give_slots()
            if len(refusals) == before:
                break
        else:
            pytest.fail(f"refused {CYCLES} times in a row: {refusals[-1]}")
        await planner.publish_estimates()
        await world.operate()
        for job in list(jobs):
            if not await goes_on(world, job, chance):
                jobs.remove(job)


async def goes_on(world: World, job: str, chance: random.Random) -> bool:
    """Something happens to a job, or nothing; false once it ends."""
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

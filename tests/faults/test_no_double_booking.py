"""Two processors and eight submitters at once, real processes on 64 cards: no card ever has two holders.

The lead is taken from whoever has it all the time, so both processors plan, also in the middle of each other's plans.
"""

import asyncio
import os
import random
from contextlib import suppress

import pytest

from reservation_core.domain.errors import AlreadyFinalError
from reservation_core.domain.statuses import JobStatus
from tests.examples import amount
from tests.faults.systems.invariants import assert_never_doubled, assert_nothing_left, outcomes
from tests.faults.systems.system import System, mixed
from tests.waiting import eventually

# FAULTS_JOBS=5000 for a long run; a multiple of the submitters.
JOBS = int(os.environ.get("FAULTS_JOBS", amount(800, 1600)))
SUBMITTERS = 8
NODES = 8
FAILS_WITH = 7


@pytest.fixture
def gpus() -> str:
    return ";".join(f"n{number}=h100:8" for number in range(NODES))


async def submit_many(system: System, count: int, source: random.Random, expected: dict[str, int]) -> None:
    """Submit `count` jobs in batches, and cancel some of them at any moment. `expected` gets id: exit code."""
    mine: list[str] = []
    while count > 0:
        batch, codes = [], []
        for _ in range(min(count, source.randint(1, 20))):
            codes.append(FAILS_WITH if source.random() < 0.1 else 0)
            busy = source.random() < 0.1
            workload = system.records.workload(
                codes[-1],
                work="sleep 1" if busy else ":",
                stubborn_s=0.5 if busy else 0,
            )
            gang = source.random() < 0.04
            batch.append(
                system.new(
                    workload,
                    gpus=source.choice((1, 1, 1, 2, 3, 4)),
                    nodes=2 if gang else 1,
                    priority=source.choice((-5, 0, 0, 0, 5)),
                )
            )
        ids = await system.submit(*batch)
        count -= len(ids)
        mine += ids
        expected |= dict(zip(ids, codes, strict=True))
        for job_id in source.sample(mine, k=min(len(mine), source.choice((0, 1, 2, 5)))):
            mine.remove(job_id)
            with suppress(AlreadyFinalError):
                await system.cancel(job_id)


async def cancel_running(system: System, source: random.Random, done: asyncio.Event) -> None:
    """Somebody ends jobs whose processes are alive and take a moment to go, while others wait for their GPUs."""
    while not done.is_set():
        alive = sorted({job_id for job_id, _ in system.records.open()})
        for job_id in source.sample(alive, k=min(len(alive), 3)):
            with suppress(AlreadyFinalError):
                await system.cancel(job_id)
        await asyncio.wait([asyncio.ensure_future(done.wait())], timeout=0.3)


async def unseat(system: System, done: asyncio.Event) -> None:
    """Let the leader's lease run out again and again, in the middle of whatever it does."""
    while not done.is_set():
        await system.rows("UPDATE planner_lease SET expires_at = '-infinity'")
        await asyncio.wait([asyncio.ensure_future(done.wait())], timeout=1)


@pytest.mark.hypothesis
@pytest.mark.timeout(1800)
async def test_no_gpu_has_two_holders_at_any_instant(system: System) -> None:
    expected: dict[str, int] = {}
    with system.processor() as one, system.processor() as other:
        async with asyncio.TaskGroup() as besides:
            done = asyncio.Event()
            besides.create_task(unseat(system, done))
            besides.create_task(cancel_running(system, mixed(99), done))
            async with asyncio.TaskGroup() as group:
                for number in range(SUBMITTERS):
                    group.create_task(submit_many(system, JOBS // SUBMITTERS, mixed(number), expected))
            await eventually(system.all_final, timeout=1500)
            done.set()
        await assert_nothing_left(system)
        assert (one.returncode(), other.returncode()) == (None, None)
        assert one.said('"leading"')
        assert other.said('"leading"')
    await assert_never_doubled(system)
    for job_id, (status, exit_code) in (await outcomes(system)).items():
        wanted = JobStatus.FAILED if expected[job_id] else JobStatus.SUCCEEDED
        assert status in (wanted, JobStatus.CANCELLED)
        assert status is JobStatus.CANCELLED or exit_code == expected[job_id]
    assert len(expected) == JOBS

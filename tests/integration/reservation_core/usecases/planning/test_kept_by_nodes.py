"""What nodes keep for jobs without GPUs as nodes change, and jobs that only look like them."""

from dataclasses import replace
from datetime import datetime

import pytest
from sqlalchemy.exc import IntegrityError

from reservation_core.adapters.postgres.connection import migrating
from reservation_core.domain.errors import CalendarConflictError, NotKeptError
from reservation_core.domain.statuses import JobStatus
from reservation_core.usecases.jobs.extend import extend
from reservation_core.usecases.jobs.submit import submit
from tests.integration.reservation_core.usecases.planning.test_cpu_jobs import GIB, HOUR, keeps, statuses
from tests.integration.reservation_core.usecases.planning.test_slots import plan, slot
from tests.integration.reservation_core.usecases.world import LONGEST, World

HALF = 0.5


async def reported(world: World, cpu_milli: int | None, memory_bytes: int | None = 100 * GIB) -> bool:
    """The nodes say what they have; returns whether that changed anything."""
    nodes = [replace(node, cpu_milli=cpu_milli, memory_bytes=memory_bytes) for node in await world.cluster.list_nodes()]
    async with world.uow() as uow:
        return bool(await uow.inventory.update(nodes, [], world.clock.now(), HALF))


async def amounts(world: World) -> set[tuple[int | None, ...]]:
    found = await world.sql("SELECT cpu_milli, spare_cpu_milli, memory_bytes FROM nodes")
    return {tuple(row) for row in found}


async def test_a_node_that_shrinks_under_its_jobs_changes_once(world: World) -> None:
    await reported(world, 10_000)
    for _ in range(2):
        await world.ran(gpus=0, resources={"cpus": 5})
    assert [await reported(world, 4000) for _ in range(3)] == [True, False, False]
    assert await amounts(world) == {(0, 5000, 50 * GIB)}


async def test_a_node_that_does_not_say_any_more_what_it_has_has_not_nothing(world: World) -> None:
    await reported(world, 10_000)
    for _ in range(2):
        await world.ran(gpus=0, resources={"cpus": 5})
    assert [await reported(world, None, None) for _ in range(2)] == [True, False]
    assert await amounts(world) == {(None, 5000, None)}


async def test_the_database_keeps_unknown_amounts_unknown(world: World) -> None:
    """Also for a program that would change what a node keeps under its jobs."""
    await keeps(world)
    await world.ran(gpus=0, resources={"cpus": 1})
    await world.ran(gpus=0, resources={"cpus": 1})
    await world.sql("UPDATE nodes SET cpu_milli = NULL, memory_bytes = NULL, spare_cpu_milli = 1")
    assert (None, 4000, None) in await amounts(world)
    assert 0 not in {amount for row in await amounts(world) for amount in row}


async def test_a_job_waits_for_no_node_that_has_no_gpus(world: World) -> None:
    nodes = [replace(node, cpu_milli=10_000, memory_bytes=100 * GIB) for node in await world.cluster.list_nodes()]
    nodes.append(replace(nodes[0], name="bare", gpus=(), cpu_milli=100_000))
    async with world.uow() as uow:
        await uow.inventory.update(nodes, [], world.clock.now(), HALF)
    asked = [world.new(gpus=0, resources={"cpus": cpus}) for cpus in (40, 5)]
    refused, stored = await submit(world.uow, asked, world.clock.now())
    assert isinstance(refused.refusal, NotKeptError)
    assert "The most is 5 CPUs" in refused.refusal.detail
    assert stored.refusal is None


async def test_an_extension_meets_what_comes_and_not_what_runs_beside(world: World) -> None:
    await keeps(world)
    short = []
    for _ in range(2):
        await world.ran(gpus=0, resources={"cpus": 1}, duration="PT5H")
        short.append(await world.ran(gpus=0, resources={"cpus": 3}, duration="PT1H"))
    waits = await world.submitted(gpus=0, resources={"cpus": 3})
    await plan(world)
    promised = await slot(world, waits)
    assert promised is not None
    [met] = await refused_extensions(world, short)
    assert f" from {promised[0]:%Y-%m-%dT%H:%M:%SZ} on " in met


async def refused_extensions(world: World, jobs: list[str]) -> list[str]:
    refused = []
    now: datetime = world.clock.now()
    for job in jobs:
        try:
            async with world.uow() as uow:
                await extend(uow, world.who, job, HOUR, None, LONGEST, now)
        except CalendarConflictError as error:
            refused.append(error.detail)
    return refused


async def test_a_job_with_gpus_never_waits_among_those_without(world: World, database_url: str) -> None:
    await keeps(world)
    without = await world.submitted(gpus=0)
    others = await world.submitted(gpus=1)
    with pytest.raises(IntegrityError, match="reservations_cpu_type"):
        await world.sql("UPDATE reservations SET gpu_type = 'cpu' WHERE id = :id", id=others)
    await migrating.downgrade(database_url, "0058_disk_uses")
    await world.sql("UPDATE reservations SET gpu_type = 'cpu' WHERE id = :id", id=without)
    await migrating.upgrade(database_url)
    await keeps(world)
    await plan(world)
    assert await statuses(world, [without, others]) == [JobStatus.QUEUED, JobStatus.STARTING]
    assert (await world.row(without)).gpu_type == "cpu-gpu"

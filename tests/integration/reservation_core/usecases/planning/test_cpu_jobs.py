"""Jobs without GPUs on a real database: planned beside others, on what nodes keep for them."""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text

from reservation_core.adapters.postgres.jobs import reservations
from reservation_core.domain.errors import CalendarConflictError
from reservation_core.domain.plan import PlacedGpu, Start
from reservation_core.domain.pools.cpu_places import place_id
from reservation_core.domain.statuses import JobStatus
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.jobs.extend import extend
from tests.integration.reservation_core.usecases.planning.test_slots import plan, slot
from tests.integration.reservation_core.usecases.world import ALLOWANCE, LONGEST, World

HOUR = timedelta(hours=1)
GIB = 2**30


async def keeps(world: World, cpu_milli: int = 4000, memory_bytes: int = 16 * GIB) -> None:
    """What every node keeps for jobs without GPUs."""
    await world.sql(
        "UPDATE nodes SET spare_cpu_milli = :cpu, spare_memory_bytes = :memory", cpu=cpu_milli, memory=memory_bytes
    )


async def statuses(world: World, jobs: list[str]) -> list[JobStatus]:
    return [(await world.row(job)).status for job in jobs]


async def test_it_starts_beside_jobs_that_have_all_gpus(world: World) -> None:
    await keeps(world)
    full = [await world.submitted(gpus=2, nodes=2)]
    jobs = [await world.submitted(gpus=0, resources={"cpus": 3}) for _ in range(3)]
    await plan(world)
    assert await statuses(world, [*full, *jobs]) == [JobStatus.STARTING] * 3 + [JobStatus.QUEUED]
    first, second = [(await world.cards(job))[0] for job in jobs[:2]]
    assert first.node != second.node
    assert first.index < 0
    found = await slot(world, jobs[2])
    assert found is not None
    assert found[0] == world.clock.now() + HOUR + ALLOWANCE
    waiting = await world.view(jobs[2])
    assert "3 CPUs" in waiting.reservation.reason.detail
    assert waiting.promised_start_at is not None


async def test_the_ledger_refuses_more_than_a_node_keeps(world: World) -> None:
    await keeps(world)
    jobs = [await world.submitted(gpus=0, resources={"cpus": 3}) for _ in range(3)]
    await plan(world)
    [node] = await world.sql("SELECT id, name FROM nodes ORDER BY id LIMIT 1")
    now = world.clock.now()
    start = Start(jobs[2], now, now + HOUR, (PlacedGpu(place_id(node.id, 31), node.name, 31, 0),))
    async with world.uow() as uow:
        epoch = await uow.planning.acquire("test", HOUR)
    assert epoch is not None
    async with world.uow() as uow:
        with pytest.raises(CalendarConflictError):
            await uow.planning.commit(epoch, [start], now)
    assert (await world.row(jobs[2])).status is JobStatus.QUEUED


async def test_it_is_extended_as_far_as_nobody_was_promised_its_place(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keeps(world)
    jobs = [await world.submitted(gpus=0, resources={"cpus": 3}) for _ in range(3)]
    await plan(world)
    found = await slot(world, jobs[2])
    assert found is not None
    [promised] = await world.sql(
        "SELECT a.node_id, n.name FROM allocations a JOIN nodes n ON n.id = a.node_id WHERE a.planned"
    )
    by_node = {(await world.cards(job))[0].node: job for job in jobs[:2]}
    beside = next(job for node, job in by_node.items() if node != promised.name)
    async with world.uow() as uow:
        await extend(uow, world.who, beside, HOUR, None, LONGEST, world.clock.now())
    with pytest.raises(CalendarConflictError, match="promised CPUs and memory"):
        async with world.uow() as uow:
            await extend(uow, world.who, by_node[promised.name], HOUR, None, LONGEST, world.clock.now())
    # The other job may be gone before it is looked for.
    own = reservations.statement
    monkeypatch.setattr(
        reservations, "statement", lambda name: text("SELECT 1 WHERE false") if name == "in_the_way" else own(name)
    )
    with pytest.raises(CalendarConflictError, match="promised to another job a moment ago") as refused:
        async with world.uow() as uow:
            await extend(uow, world.who, by_node[promised.name], HOUR, None, LONGEST, world.clock.now())
    assert "GPU" not in refused.value.detail


async def test_what_it_had_goes_to_the_next_and_counts_for_no_usage(world: World) -> None:
    await keeps(world)
    first = await world.ran(gpus=0, resources={"cpus": 4, "memory": "16Gi"})
    second = await world.ran(gpus=0, resources={"cpus": 4, "memory": "16Gi"})
    third = await world.submitted(gpus=0, resources={"cpus": 1})
    await plan(world)
    assert await statuses(world, [first, second, third]) == [JobStatus.RUNNING] * 2 + [JobStatus.QUEUED]
    async with world.uow() as uow:
        await cancel(uow, world.who, first, None, world.clock.now())
    await world.operate()
    await plan(world)
    assert await statuses(world, [first, third]) == [JobStatus.CANCELLED, JobStatus.STARTING]
    async with world.uow() as uow:
        counts = await uow.inventory.gpu_counts()
    assert {state.value for _, state, _ in counts} == {"free"}


async def reported(world: World, kept: float, cpu_milli: int = 10_000) -> list[tuple[int | None, int | None]]:
    """What nodes have and keep after the cluster has reported them once more."""
    nodes = [replace(node, cpu_milli=cpu_milli, memory_bytes=100 * GIB) for node in await world.cluster.list_nodes()]
    async with world.uow() as uow:
        await uow.inventory.update(nodes, [], world.clock.now(), kept)
    found = await world.sql("SELECT cpu_milli, spare_cpu_milli FROM nodes ORDER BY name")
    return [(row.cpu_milli, row.spare_cpu_milli) for row in found]


async def test_a_part_of_each_node_is_kept_and_stays_while_jobs_ask_there(world: World) -> None:
    assert await reported(world, 0) == [(10_000, None)] * 2
    assert await reported(world, 0.2) == [(8000, 2000)] * 2
    job = await world.ran(gpus=0, resources={"cpus": 2})
    [place] = await world.cards(job)
    assert place.node == "a"
    assert await reported(world, 0.1) == [(8000, 2000), (9000, 1000)]
    assert await reported(world, 0.1, 12_000) == [(10_000, 2000), (10_800, 1200)]
    greedy = await world.ran(gpus=1, resources={"cpus": 9})
    assert (await world.cards(greedy))[0].node in ("a", "b")
    assert await reported(world, 0.5, 12_000) == [
        (10_000, 2000), (10_800, 1200) if (await world.cards(greedy))[0].node == "b" else (6000, 6000)
    ]  # fmt: skip
    # The database keeps it, too.
    await world.sql("UPDATE nodes SET spare_cpu_milli = 0, cpu_milli = 12000 WHERE name = 'a'")
    [kept] = await world.sql("SELECT cpu_milli, spare_cpu_milli FROM nodes WHERE name = 'a'")
    assert (kept.cpu_milli, kept.spare_cpu_milli) == (10_000, 2000)


async def test_a_node_that_is_switched_off_gives_its_places_back(world: World) -> None:
    await keeps(world)
    job = await world.ran(gpus=0)
    [place] = await world.cards(job)
    await world.sql(
        "UPDATE nodes SET ready = false, fenced_at = now(), fenced_by = 'root' WHERE name = :n", n=place.node
    )
    async with world.uow() as uow:
        assert list(await uow.inventory.cut_off()) == [job]


async def test_a_node_has_so_many_places(world: World) -> None:
    await keeps(world, cpu_milli=64_000, memory_bytes=128 * GIB)
    jobs = [await world.submitted(gpus=0) for _ in range(70)]
    await plan(world)
    found = await statuses(world, jobs)
    # So many places two nodes have; the others have promises.
    assert (found.count(JobStatus.STARTING), found.count(JobStatus.QUEUED)) == (64, 6)
    [planned] = await world.sql("SELECT count(*) AS rows FROM allocations WHERE planned AND node_id IS NOT NULL")
    assert planned.rows == 6

"""A ledger restored from a backup knows less than the cluster: what runs is taken up, and no card is given twice."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import create_async_engine

from reservation_core.domain.statuses import JobStatus, ReasonCode
from reservation_core.ports.jobs.reservations import JobView
from reservation_core.ports.nodes.inventory import GpuView
from reservation_core.ports.wakeups import Channel
from tests.faults.systems.invariants import assert_never_doubled, assert_nothing_left
from tests.faults.systems.system import System, open_system
from tests.waiting import eventually

GPUS = "a=h100:4;b=h100:4"
BUSY = "while :; do sleep 0.1; done"
Backup = Callable[[], Awaitable[str]]


@pytest.fixture
async def backup(database_url: str) -> AsyncIterator[Backup]:
    """Copies the database, to which nobody may be connected then; returns the copy's URL."""
    url = make_url(database_url)
    engine = create_async_engine(url.set(database="postgres"), isolation_level="AUTOCOMMIT")

    async def copy() -> str:
        async with engine.connect() as connection:
            await connection.execute(text(f'CREATE DATABASE "{url.database}_copy" TEMPLATE "{url.database}"'))
        return url.set(database=f"{url.database}_copy").render_as_string(hide_password=False)

    yield copy
    async with engine.connect() as connection:
        await connection.execute(text(f'DROP DATABASE IF EXISTS "{url.database}_copy" WITH (FORCE)'))
    await engine.dispose()


def cards_of(view: JobView) -> set[tuple[str, int]]:
    return {(gpu.node, gpu.index) for gpu in view.allocations}


async def gpus(system: System) -> list[GpuView]:
    async with system.runtime.uow() as uow:
        return await uow.inventory.gpus(after=None, limit=100)


async def reported(system: System) -> list[str]:
    async with system.runtime.uow() as uow:
        return [pod.name for pod in await uow.unknown_pods.page(after=None, limit=100)]


async def test_a_restored_ledger_takes_up_what_runs_and_gives_no_card_twice(
    database_url: str, tmp_path: Path, backup: Backup
) -> None:
    async with open_system(database_url, tmp_path, GPUS, pods_go_on=True) as system:
        busy = system.records.workload(work=BUSY)
        [old] = await system.submit(system.new(busy, gpus=3))
        async with system.working():
            await system.reaches(old, JobStatus.RUNNING)
        single, gang = await system.submit(system.new(busy, gpus=2), system.new(busy, gpus=1, nodes=2))
        short, waiting = await system.submit(
            system.new(system.records.workload(work="sleep 0.2"), gpus=1), system.new(busy, gpus=4, nodes=2)
        )
    restored = await backup()

    # What the backup has not seen: one ends, two start, one comes and goes, and one is submitted and runs.
    async with open_system(database_url, tmp_path, GPUS, pods_go_on=True) as system, system.working():
        ran = {job_id: cards_of(await system.reaches(job_id, JobStatus.RUNNING)) for job_id in (single, gang)}
        await system.reaches(short, JobStatus.SUCCEEDED)
        await system.cancel(old)
        await system.reaches(old, JobStatus.CANCELLED)
        await system.cancel(waiting)
        [new] = await system.submit(system.new(busy, gpus=3))
        taken = cards_of(await system.reaches(new, JobStatus.RUNNING))

    async with open_system(restored, tmp_path, GPUS) as system:
        assert await system.cancel(short) is JobStatus.CANCELLED  # it would run once more: nothing tells that it has
        [eager] = await system.submit(system.new(system.records.workload(work=BUSY), gpus=1, priority=50))
        async with system.working():
            for job_id, cards in ran.items():
                view = await system.reaches(job_id, JobStatus.RUNNING)
                assert (cards_of(view), view.reservation.attempt) == (cards, 1)
            lost = (await system.reaches(old, JobStatus.FAILED)).reservation
            assert lost.reason.code is ReasonCode.POD_LOST

            async def only_the_new_one_is_reported() -> bool:
                return await reported(system) == [f"{new}-1-0"]

            await eventually(only_the_new_one_is_reported)
            states = {(gpu.node, gpu.index): gpu.state.value for gpu in await gpus(system)}
            assert {states[card] for card in taken} == {"foreign"}
            given = cards_of(await system.reaches(eager, JobStatus.RUNNING))
            assert not given & (taken | ran[single] | ran[gang])
            await assert_never_doubled(system)

            # An administrator's word ends what nobody knows; its cards are free again.
            async with system.runtime.uow() as uow:
                await uow.unknown_pods.request_end(f"{new}-1-0", "ada", system.runtime.clock.now())
                uow.wake(Channel.RESYNC)

            async def free_again() -> bool:
                free = {(gpu.node, gpu.index) for gpu in await gpus(system) if gpu.state.value == "free"}
                return taken <= free

            await eventually(free_again)
            for job_id in (single, gang, eager, waiting):
                await system.cancel(job_id)
            await eventually(system.all_final)
            await assert_nothing_left(system)
        await assert_never_doubled(system)

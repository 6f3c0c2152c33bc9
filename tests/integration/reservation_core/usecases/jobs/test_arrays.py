"""Arrays in the ledger: their elements are made as others start, each runs once, and they are counted exactly."""

import pytest
from sqlalchemy.exc import IntegrityError

from reservation_core.domain.errors import NotFoundError
from reservation_core.domain.jobs.arrays import MADE_AHEAD
from reservation_core.domain.model import JobStatus, PodPhase, ReasonCode
from reservation_core.domain.request_terms import ArrayCounts
from reservation_core.usecases.jobs.arrays import elements, settle_arrays
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.jobs.visible_jobs import view_visible
from tests.integration.reservation_core.usecases.world import World, pod
from tests.sql import sql


async def settle_all(world: World) -> None:
    """Look until there is no news."""
    while await settle_arrays(world.uow, world.clock):
        pass


async def counts(world: World, array_id: str) -> ArrayCounts:
    found = (await world.view(array_id)).counts
    assert found is not None
    return found


async def run(world: World, job_id: str) -> None:
    await world.see(world.cluster.show(pod(job_id), PodPhase.RUNNING, started_at=world.clock.now()))
    assert (await world.row(job_id)).status is JobStatus.RUNNING


async def end(world: World, job_id: str, exit_code: int = 0) -> None:
    now = world.clock.now()
    shown = world.cluster.show(pod(job_id), PodPhase.FINISHED, started_at=now, finished_at=now, exit_code=exit_code)
    await world.see(shown)
    await world.operate()
    await world.see(world.cluster.show(pod(job_id), PodPhase.GONE))
    assert (await world.row(job_id)).finished_at is not None


async def round_of(world: World) -> None:
    """One look of everything that works on arrays."""
    await settle_all(world)
    await world.plan()
    await world.operate()


async def cancelled(world: World, job_id: str) -> None:
    async with world.uow() as uow:
        await cancel(uow, world.who, job_id, None, world.clock.now())


async def test_elements_run_and_are_counted_and_the_array_ends_with_the_last(world: World) -> None:
    array_id = await world.submitted(array={"size": 3})
    await round_of(world)
    ids = [f"{array_id}.{index}" for index in range(3)]
    for job_id in ids:
        await run(world, job_id)
    await settle_all(world)
    assert await counts(world, array_id) == ArrayCounts(running=3)
    assert (await world.view(array_id)).reservation.status is JobStatus.RUNNING
    await end(world, ids[0])
    await end(world, ids[2], exit_code=7)
    assert await counts(world, array_id) == ArrayCounts(running=1, succeeded=1, failed=1)
    await settle_all(world)
    assert await counts(world, array_id) == ArrayCounts(running=1, succeeded=1, failed=1)
    await end(world, ids[1])
    await settle_all(world)
    array = (await world.view(array_id)).reservation
    assert (array.status, array.reason.code, array.exit_code) == (JobStatus.FAILED, ReasonCode.ELEMENTS_FAILED, 7)
    assert array.started_at is not None
    assert array.finished_at is not None
    assert await counts(world, array_id) == ArrayCounts(succeeded=2, failed=1)
    assert await world.kinds(array_id) == ["submitted", "started", "failed"]
    assert await world.kinds(ids[0]) == ["submitted", "allocated", "started", "finished", "succeeded"]


async def test_an_element_knows_its_index_and_the_size(world: World) -> None:
    array_id = await world.submitted(array={"size": 2}, workload={"command": ["true"], "env": {"A": "b"}})
    await round_of(world)
    for index in range(2):
        [spec] = [one for one in world.cluster.created if one.name == pod(f"{array_id}.{index}")]
        env = dict(spec.env)
        assert (env["GPU_DEV_ARRAY_INDEX"], env["GPU_DEV_ARRAY_SIZE"], env["A"]) == (str(index), "2", "b")


async def test_the_array_itself_is_never_planned(world: World) -> None:
    array_id = await world.submitted(array={"size": 1})
    await world.plan(slots=True)
    assert (await world.row(array_id)).status is JobStatus.QUEUED
    assert await world.cards(array_id) == ()
    async with world.uow() as uow:
        with pytest.raises(IntegrityError, match="reservations_array_is_not_planned"):
            await sql(uow, "UPDATE reservations SET held = false WHERE id = :id", id=array_id)


async def test_no_more_elements_are_open_than_may_run_at_once(world: World) -> None:
    array_id = await world.submitted(array={"size": 5, "parallel": 2})
    seen: list[str] = []
    for _ in range(5):
        await round_of(world)
        async with world.uow() as uow:
            open_now = await uow.arrays.open_elements(array_id, 10)
        assert 1 <= len(open_now) <= 2
        seen += [job_id for job_id in open_now if job_id not in seen]
        await run(world, open_now[0]) if (await world.row(open_now[0])).status is JobStatus.STARTING else None
        for job_id in open_now[1:]:
            await run(world, job_id) if (await world.row(job_id)).status is JobStatus.STARTING else None
        await end(world, open_now[0])
    await settle_all(world)
    assert seen == [f"{array_id}.{index}" for index in range(5)]
    assert (await world.row(array_id)).status is JobStatus.SUCCEEDED


async def test_only_so_many_elements_wait_and_all_are_listed(world: World) -> None:
    size = MADE_AHEAD + 70
    array_id = await world.submitted(array={"size": size}, gpu_type="none-there")
    later = await world.submitted(gpu_type="none-there")
    await settle_all(world)
    async with world.uow() as uow:
        assert len(await uow.arrays.open_elements(array_id, size)) == MADE_AHEAD
        page = await elements(uow, world.who, array_id, None, after=MADE_AHEAD - 3, limit=5)
        queued = await elements(uow, world.who, array_id, frozenset({JobStatus.QUEUED}), after=-1, limit=size + 1)
        ended = await elements(uow, world.who, array_id, frozenset({JobStatus.FAILED}), after=-1, limit=size + 1)
        last = await view_visible(uow, world.who, f"{array_id}.{size - 1}")
        with pytest.raises(NotFoundError):
            await view_visible(uow, world.who, f"{array_id}.{size}")
    assert [view.reservation.id for view in page] == [f"{array_id}.{MADE_AHEAD - 2 + n}" for n in range(5)]
    assert (len(queued), ended) == (size, [])
    assert last.reservation.status is JobStatus.QUEUED
    assert await counts(world, array_id) == ArrayCounts(queued=size)
    # All of them come before what was submitted later.
    assert last.reservation.seq < (await world.row(later)).seq
    with pytest.raises(NotFoundError, match="before it enters the queue"):
        await cancelled(world, f"{array_id}.{size - 1}")


async def test_cancelling_ends_all_elements_and_then_the_array(world: World) -> None:
    array_id = await world.submitted(array={"size": 300, "parallel": 200})
    await round_of(world)
    await run(world, f"{array_id}.0")
    await settle_all(world)
    await cancelled(world, array_id)
    view = await world.view(array_id)
    assert view.reservation.status is JobStatus.ENDING
    assert view.reservation.reason.code is ReasonCode.CANCELLED_BY_USER
    assert view.counts is not None
    assert view.counts.queued == 0
    await world.operate()
    async with world.uow() as uow:
        rows = await uow.reservations.live()
    await world.see(*(world.cluster.show(pod(row.id), PodPhase.GONE) for row in rows))
    await settle_all(world)
    assert (await world.row(array_id)).status is JobStatus.CANCELLED
    assert await counts(world, array_id) == ArrayCounts(cancelled=300)
    assert (await world.kinds(array_id))[-2:] == ["cancel_requested", "cancelled"]


async def test_an_array_that_waits_is_cancelled_at_once(world: World) -> None:
    array_id = await world.submitted(array={"size": 200}, gpu_type="none-there")
    await settle_all(world)
    await cancelled(world, array_id)
    assert (await world.row(array_id)).status is JobStatus.CANCELLED
    assert await counts(world, array_id) == ArrayCounts(cancelled=200)

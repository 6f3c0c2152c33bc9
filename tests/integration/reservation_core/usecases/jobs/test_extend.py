"""Extending and cancelling for somebody."""

from dataclasses import replace
from datetime import timedelta

import pytest

from reservation_core.domain.errors import (
    AlreadyFinalError,
    CalendarConflictError,
    LimitExceededError,
    NotExtendableError,
    NotFoundError,
    StaleVersionError,
)
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.start_decisions import plan_starts
from reservation_core.domain.statuses import JobStatus, Role
from reservation_core.ports.jobs.reservations import JobView
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.jobs.extend import extend
from tests.integration.reservation_core.usecases.world import ALLOWANCE, LONGEST, World, pod

HOUR = timedelta(hours=1)


async def extended(
    world: World, job_id: str, by: timedelta = HOUR, version: int | None = None, who: Principal | None = None
) -> JobView:
    async with world.uow() as uow:
        return await extend(uow, who or world.who, job_id, by, version, LONGEST, world.clock.now())


async def promise(world: World, gpu_id: int, hours: int) -> None:
    """Promise a card to somebody else, for the hour that begins so many hours from now."""
    other = await world.submitted(gpus=1, gpu_type="t4")
    await world.sql(
        "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at) "
        "VALUES (:id, 0, :gpu_id, 0, tstzrange(:first, :last), false, :now)",
        id=other,
        gpu_id=gpu_id,
        first=world.clock.now() + hours * HOUR,
        last=world.clock.now() + (hours + 1) * HOUR,
        now=world.clock.now(),
    )


async def test_a_running_job_lasts_longer_in_the_ledger_and_in_the_cluster(world: World) -> None:
    job_id = await world.ran()
    view = await extended(world, job_id)
    end = world.clock.now() + 2 * HOUR
    assert (view.reservation.ends_at, view.reservation.duration) == (end, 2 * HOUR)
    assert [gpu.ends_at for gpu in await world.cards(job_id)] == [end]
    await world.operate()
    assert world.cluster.deadlines == {str(pod(job_id)): end + timedelta(seconds=30)}


async def test_an_extension_into_somebody_elses_range_is_refused_and_changes_nothing(world: World) -> None:
    job_id = await world.ran()
    [card] = await world.cards(job_id)
    await promise(world, card.gpu_id, hours=2)
    before = await world.view(job_id)
    with pytest.raises(CalendarConflictError, match="Extend by less"):
        await extended(world, job_id, by=HOUR + timedelta(seconds=1))
    assert await world.view(job_id) == before
    assert (await world.kinds(job_id))[-1] == "started"
    # Ranges are half-open: up to its beginning there is room.
    assert (await extended(world, job_id)).reservation.ends_at == world.clock.now() + 2 * HOUR


async def test_a_waiting_job_is_planned_with_its_new_duration(world: World) -> None:
    job_id = await world.submitted()
    await extended(world, job_id)
    await world.plan()
    assert (await world.row(job_id)).range_end == world.clock.now() + ALLOWANCE + 2 * HOUR


async def test_a_plan_made_before_an_extension_does_not_undo_it(world: World) -> None:
    job_id = await world.submitted()
    planner_epoch = 1
    async with world.uow() as uow:
        assert await uow.planning.acquire("test", HOUR) == planner_epoch
        seen = await uow.planning.snapshot(10, ALLOWANCE)
    starts = plan_starts(Picture(seen), world.clock.now(), 10)
    assert [start.id for start in starts] == [job_id]
    await extended(world, job_id)
    async with world.uow() as uow:
        outcome = await uow.planning.commit(planner_epoch, starts, world.clock.now())
    assert outcome.started == frozenset()
    await world.plan()
    row = await world.row(job_id)
    assert (row.status, row.range_end) == (JobStatus.STARTING, world.clock.now() + ALLOWANCE + 2 * HOUR)


async def test_refusals(world: World) -> None:
    job_id = await world.ran()
    version = (await world.row(job_id)).version
    stranger = Principal(world.who.user_id + 1, "mallory", Role.USER, "tok-y", None)
    with pytest.raises(NotFoundError):
        await extended(world, job_id, who=stranger)
    with pytest.raises(NotFoundError):
        await extended(world, "job-nobody")
    with pytest.raises(StaleVersionError, match="Read it again"):
        await extended(world, job_id, version=version - 1)
    with pytest.raises(LimitExceededError):
        await extended(world, job_id, by=LONGEST)
    admin = replace(stranger, role=Role.ADMIN)
    # An administrator may, but what comes back is what an administrator sees.
    async with world.uow() as uow:
        view = await extend(uow, admin, job_id, HOUR, version, LONGEST, world.clock.now())
    assert view.reservation.version == version + 1
    async with world.uow() as uow:
        await cancel(uow, admin, job_id, None, world.clock.now())
    assert (await world.row(job_id)).reason.code.value == "cancelled_by_admin"
    with pytest.raises(NotExtendableError):
        await extended(world, job_id)
    await world.operate()
    with pytest.raises(AlreadyFinalError):
        await extended(world, job_id)

"""The order of what waits, on a real database: smaller jobs first or by arrival, after priority and fair share."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from reservation_core.domain.calendar import to_micros
from reservation_core.domain.plan import Waiting
from reservation_core.domain.policy.nouns import QueueOrder, Scope
from reservation_core.domain.statuses import JobStatus, Role
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.queues import QueueName
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.planning.planner import Planner
from tests.database.sql import sql
from tests.integration.reservation_core.usecases.planning.quotas.test_quotas import rule
from tests.integration.reservation_core.usecases.planning.test_slots import WHOLE, plan, slot
from tests.integration.reservation_core.usecases.world import ALLOWANCE, World

SMALL, LARGE = {**WHOLE, "duration": 3600}, {**WHOLE, "duration": 36_000}
FULL = {**WHOLE, "duration": 24 * 3600}


async def project(world: World, name: str, order: QueueOrder | None = None) -> None:
    """A project of the world's user, with an order of its own."""
    async with world.uow() as uow:
        await uow.projects.create(name, None, world.clock.now())
        await uow.projects.add_member(name, world.who.user_id)
    if order is not None:
        await rule(world, Scope(project=name), order=order)


async def someone(world: World, name: str) -> World:
    """The world as another user sees it."""
    async with world.uow() as uow:
        user = await uow.identities.create_user(name, Role.USER, world.clock.now())
    return replace(world, who=Principal(user.id, user.name, user.role, f"tok-{name}", None))


async def go_by(world: World, planner: Planner, job_ids: list[str]) -> list[str]:
    """End what runs, again and again: the order in which these jobs start. No slot is later than its promise."""
    started: list[str] = []
    while len(started) < len(job_ids):
        [running] = await world.sql("SELECT id, user_id FROM reservations WHERE status IN ('starting', 'running')")
        async with world.uow() as uow:
            await cancel(uow, replace(world.who, role=Role.ADMIN), running.id, None, world.clock.now())
        await world.operate()
        await plan(world, planner)
        started += [
            job_id
            for job_id in job_ids
            if job_id not in started and (await world.row(job_id)).status is JobStatus.STARTING
        ]
        for job_id in set(job_ids) - set(started):
            placed, promised = await slot(world, job_id), (await world.view(job_id)).promised_start_at
            assert placed is not None
            assert promised is not None
            assert placed[0] <= promised
        world.clock.go_on(timedelta(seconds=1))
    return started


async def waiting(world: World, planner: Planner, *jobs: dict[str, object]) -> list[str]:
    """Jobs that came one after the other; each was promised a start before the next came."""
    ids: list[str] = []
    for fields in jobs:
        ids.append(await world.submitted(**fields))
        await plan(world, planner)
        world.clock.go_on(timedelta(seconds=1))
    return ids


async def test_a_release_starts_the_smaller_job_first_though_the_larger_was_promised_an_earlier_start(
    world: World,
) -> None:
    await world.ran(**FULL)
    planner = await world.planner()
    large, small = await waiting(world, planner, LARGE, SMALL)
    assert (await world.view(large)).promised_start_at < (await world.view(small)).promised_start_at  # type: ignore[operator]
    assert await go_by(world, planner, [large, small]) == [small, large]


async def test_a_project_keeps_its_own_order_beside_one_that_has_the_usual_order(world: World) -> None:
    await project(world, "vision")
    await project(world, "tides", QueueOrder.ARRIVAL)
    await world.ran(**FULL)
    planner = await world.planner()
    jobs = [{**size, "project": name} for size in (LARGE, SMALL) for name in ("vision", "tides")]
    vision_large, tides_large, vision_small, tides_small = await waiting(world, planner, *jobs)
    started = await go_by(world, planner, [vision_large, tides_large, vision_small, tides_small])
    # A job of a project in the order of arrival counts as 8 GPU-hours.
    assert started == [vision_small, tides_large, tides_small, vision_large]


async def test_the_order_of_everybody_may_be_that_of_arrival_and_a_projects_by_area(world: World) -> None:
    await rule(world, order=QueueOrder.ARRIVAL)
    await project(world, "vision", QueueOrder.AREA)
    await world.ran(**FULL)
    planner = await world.planner()
    own_large, own_small, large, small = await waiting(
        world, planner, LARGE, SMALL, {**LARGE, "project": "vision"}, {**SMALL, "project": "vision"}
    )
    started = await go_by(world, planner, [own_large, own_small, large, small])
    assert started == [small, own_large, own_small, large]


async def test_a_changed_order_holds_for_what_waits_already(world: World) -> None:
    await world.ran(**FULL)
    planner = await world.planner()
    large, small = await waiting(world, planner, LARGE, SMALL)
    assert [(await world.view(job_id)).queue_position for job_id in (large, small)] == [2, 1]
    await rule(world, order=QueueOrder.ARRIVAL)
    await plan(world, planner)
    assert [(await world.view(job_id)).queue_position for job_id in (large, small)] == [1, 2]
    assert await go_by(world, planner, [large, small]) == [large, small]


@pytest.mark.parametrize("order", QueueOrder)
async def test_priority_goes_before_the_order(world: World, order: QueueOrder) -> None:
    await rule(world, order=order)
    await world.ran(**FULL)
    planner = await world.planner()
    small, urgent = await waiting(world, planner, SMALL, {**LARGE, "priority": 5})
    assert await go_by(world, planner, [small, urgent]) == [urgent, small]


@pytest.mark.parametrize("order", QueueOrder)
async def test_fair_share_goes_before_the_order(world: World, order: QueueOrder) -> None:
    await rule(world, order=order)
    await world.ran(**FULL)
    bob = await someone(world, "bob")
    planner = await world.planner()
    planner.set_shares({world.who.user_id: 1, bob.who.user_id: 0})
    [small] = await waiting(world, planner, SMALL)
    [large] = await waiting(bob, planner, LARGE)
    assert await go_by(world, planner, [small, large]) == [large, small]


async def test_what_has_waited_for_long_goes_before_what_is_smaller(world: World) -> None:
    """Its time of submission is read, by the planner that saw it come and by the next one."""
    await world.ran(**FULL)
    planner = await world.planner()
    large, small = await waiting(world, planner, LARGE, SMALL)
    await world.sql("UPDATE reservations SET created_at = created_at - interval '10 days' WHERE id = :id", id=large)
    planner = await world.planner()
    await plan(world, planner)
    assert [(await world.view(job_id)).queue_position for job_id in (large, small)] == [1, 2]
    assert await go_by(world, planner, [large, small]) == [large, small]


async def test_every_way_to_read_what_waits_has_the_times_of_submission_and_promise(world: World) -> None:
    await world.ran(**FULL)
    slotted = await world.submitted(**SMALL)
    await plan(world)
    world.clock.go_on(timedelta(minutes=5))
    ids = [slotted, *[await world.submitted(**SMALL) for _ in range(3)]]
    submitted_at = {job_id: to_micros((await world.row(job_id)).created_at) for job_id in ids}
    assert submitted_at[slotted] < submitted_at[ids[1]]
    promised = (await world.view(slotted)).promised_start_at
    assert promised is not None
    found: dict[str, Sequence[Waiting]] = {}
    async with world.uow() as uow:
        found["first"] = list((await uow.planning.snapshot(1000, ALLOWANCE)).waiting)
        found["apart"] = list((await uow.planning.snapshot(0, ALLOWANCE)).waiting)
        found["changed"], _ = await uow.planning.changed(ids, ALLOWANCE)
        messages = [{"v": 1, "kind": "changed", "id": job_id} for job_id in ids]
        await uow.queue.send(QueueName.GPU_JOBS, [*messages, {"v": 1, "kind": "inventory"}])
        await sql(uow, "SELECT pgmq.send('gpu_jobs', body) FROM unnest(CAST('{7,[]}' AS jsonb[])) AS body")
        found["news"] = (await uow.planning.news(100, ALLOWANCE)).waiting
        found["more"] = await uow.planning.more_waiting(None, None, 100, ALLOWANCE)
    assert {job.id for job in found["apart"]} == {slotted}
    assert all(len(found[way]) == len(ids) for way in ("first", "changed", "more"))
    assert set(found["news"]) == set(found["changed"])
    for job in (job for jobs in found.values() for job in jobs):
        assert job.submitted_at == submitted_at[job.id]
        assert job.promised_at == (to_micros(promised) if job.id == slotted else None)

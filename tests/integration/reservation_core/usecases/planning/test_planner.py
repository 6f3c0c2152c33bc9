"""The planner's cycle on a real database: windows, priorities, reloads, fencing, and what waiting jobs are told."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from reservation_core.domain.statuses import JobStatus, Role
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.planning.planning import LostLeadershipError
from reservation_core.ports.queues import QueueName
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.jobs.submit import submit
from reservation_core.usecases.planning import planner as plan_and_allocate
from reservation_core.usecases.planning.planner import CycleOutcome, Planner
from tests.database.sql import sql
from tests.integration.reservation_core.usecases.world import ALLOWANCE, World
from tests.waiting import eventually

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


async def many(world: World, count: int, **fields: object) -> list[str]:
    answers = await submit(world.uow, [world.new(**fields) for _ in range(count)], world.clock.now())
    return [answer.reservation_id for answer in answers]


async def statuses(world: World, ids: list[str]) -> list[JobStatus]:
    return [(await world.row(job_id)).status for job_id in ids]


async def told(world: World) -> dict[str, datetime | None]:
    """Jobs with an estimate, and the estimated start."""
    rows = await world.sql("SELECT reservation_id, estimated_start_at FROM wait_estimates")
    return {row.reservation_id: row.estimated_start_at for row in rows}


async def drained(planner: Planner) -> list[CycleOutcome]:
    outcomes = [await planner.cycle()]
    while outcomes[-1].more or outcomes[-1].started or outcomes[-1].messages:
        outcomes.append(await planner.cycle())
    return outcomes


async def free_all(world: World, ids: list[str]) -> None:
    for job_id in ids:
        async with world.uow() as uow:
            await cancel(uow, world.who, job_id, None, world.clock.now())
    await world.operate()
    world.clock.go_on(timedelta(seconds=1))


async def test_a_line_longer_than_the_window_is_planned_to_its_end_in_order(world: World) -> None:
    world.rules = replace(world.rules, window=10, batch=3)
    ids = await many(world, 45)
    planner = await world.planner()
    started: list[str] = []
    while len(started) < len(ids):
        await drained(planner)
        now_started = [i for i in ids if i not in started and (await world.row(i)).status is JobStatus.STARTING]
        assert now_started == ids[len(started) : len(started) + len(now_started)]
        assert now_started, "nobody starts although GPUs are free"
        started += now_started
        await free_all(world, now_started)
    assert set(await statuses(world, ids)) == {JobStatus.CANCELLED}


async def test_jobs_that_no_node_can_run_do_not_hide_those_behind_the_window(world: World) -> None:
    world.rules = replace(world.rules, window=10)
    await many(world, 25, gpus=3)
    fits = await world.submitted()
    planner = await world.planner()
    await drained(planner)
    assert (await world.row(fits)).status is JobStatus.STARTING


async def test_a_greater_priority_goes_first(world: World) -> None:
    first = await world.ran(gpus=2, nodes=2)
    low, high = await world.submitted(gpus=2, nodes=2), await world.submitted(gpus=2, nodes=2, priority=5)
    await free_all(world, [first])
    await world.plan()
    assert await statuses(world, [low, high]) == [JobStatus.QUEUED, JobStatus.STARTING]


async def test_what_a_lost_message_left_wrong_is_put_right_by_the_reload(world: World) -> None:
    planner = await world.planner()
    await planner.cycle()
    job_id = await world.submitted()
    await world.sql("DELETE FROM pgmq.q_gpu_jobs")
    await planner.cycle()
    assert (await world.row(job_id)).status is JobStatus.QUEUED
    world.clock.go_on(world.rules.reload_every)
    await planner.cycle()
    assert (await world.row(job_id)).status is JobStatus.STARTING


async def test_a_ledger_that_disagrees_wins(world: World) -> None:
    planner = await world.planner()
    other = await world.submitted(gpu_type="t4")
    await drained(planner)
    await world.sql(
        "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at) SELECT "
        ":id, 0, id, 0, tstzrange(:now, :end), true, :now FROM gpus",
        id=other,
        now=world.clock.now(),
        end=world.clock.now() + HOUR,
    )
    job_id = await world.submitted()
    assert (await planner.cycle()).conflict
    assert not (await planner.cycle()).conflict
    assert (await world.row(job_id)).status is JobStatus.QUEUED
    # The planner does not take it for started: it starts when there is room.
    async with world.uow() as uow:
        await sql(uow, "DELETE FROM allocations WHERE reservation_id = :id", id=other)
        await uow.queue.send(QueueName.GPU_JOBS, [{"v": 1, "kind": "changed", "id": other}])
    await drained(planner)
    assert (await world.row(job_id)).status is JobStatus.STARTING


async def test_a_cancelled_job_is_not_started_by_a_plan_made_before(world: World) -> None:
    planner = await world.planner()
    await drained(planner)
    ids = await many(world, 2)
    async with world.uow() as uow:
        messages = await uow.queue.read(QueueName.GPU_JOBS, visibility=timedelta(seconds=60), limit=100)
        await cancel(uow, world.who, ids[0], None, world.clock.now())
    assert messages
    world.clock.go_on(world.rules.reload_every)
    assert (await planner.cycle()).started == 1
    assert await statuses(world, ids) == [JobStatus.CANCELLED, JobStatus.STARTING]


async def test_a_deposed_planner_writes_nothing(world: World) -> None:
    old = await world.planner()
    await world.planner()
    job_id = await world.submitted()
    with pytest.raises(LostLeadershipError):
        await old.cycle()
    assert (await world.row(job_id)).status is JobStatus.QUEUED
    assert await world.depth("gpu_jobs") > 0


async def test_a_deposed_planner_gives_no_slots(world: World) -> None:
    await world.ran(gpus=2, nodes=2)
    old = await world.planner()
    job_id = await world.submitted()
    await old.cycle()
    await world.planner()
    with pytest.raises(LostLeadershipError):
        await old.give_slots()
    assert (await world.sql("SELECT count(*) FROM allocations WHERE planned")).scalar_one() == 0
    assert (await world.view(job_id)).promised_start_at is None


async def test_places_and_estimates_go_on_beyond_the_estimated_part(world: World) -> None:
    """Beyond those told one by one, a start is the slot in the ledger, and places go on after those told."""
    world.rules = replace(world.rules, estimates=3, promises=6)
    await world.ran(gpus=2, nodes=2)
    ids = await many(world, 8, gpus=2, nodes=2)
    await world.plan(slots=True)
    views = [await world.view(job_id) for job_id in ids]
    assert [view.queue_position for view in views] == list(range(1, 9))
    estimates = [view.estimated_start_at for view in views]
    assert estimates[:6] == [world.clock.now() + HOUR + i * (HOUR + ALLOWANCE) for i in range(6)]
    assert estimates[6:] == [None, None]
    assert {view.reservation.reason.code.value for view in views[1:]} == {"behind_in_line"}
    assert views[7].reservation.reason.detail.startswith("7 jobs are ahead of it in this queue.")
    async with world.uow() as uow:
        line = await uow.reservations.waiting_views(None, limit=100, after=None)
    assert [view.reservation.id for view in line] == ids
    assert [view.queue_position for view in line] == list(range(1, 9))


async def test_no_two_have_one_place_where_shares_order_the_line_otherwise(world: World) -> None:
    """An early job whose owner has had much stands behind those told, and is counted there."""
    world.rules = replace(world.rules, estimates=2)
    await world.ran(gpus=2, nodes=2)
    async with world.uow() as uow:
        other = await uow.identities.create_user("bob", Role.USER, world.clock.now())
    ids = await many(world, 3, gpus=2, nodes=2)
    bobs = replace(world, who=Principal(other.id, other.name, other.role, "tok-b", None))
    ids += await many(bobs, 2, gpus=2, nodes=2)
    planner = await world.planner()
    planner.set_shares({world.who.user_id: 1, other.id: 0})
    await planner.cycle()
    while await planner.give_slots():
        pass
    await planner.publish_estimates()
    async with world.uow() as uow:
        line = await uow.reservations.waiting_views(None, limit=100, after=None)
    places = {view.reservation.id: view.queue_position for view in line}
    assert [places[job_id] for job_id in ids] == [3, 4, 5, 1, 2]


async def test_who_is_passed_by_many_is_told_so(world: World) -> None:
    world.rules = replace(world.rules, estimates=3)
    await world.ran(gpus=2, nodes=2)
    job_id = await world.submitted()
    await world.plan()
    assert (await world.view(job_id)).queue_position == 1
    await many(world, 5, gpus=2, nodes=2, priority=5)
    await world.plan()
    assert (await world.view(job_id)).queue_position == 6


async def test_estimates_are_written_only_as_often_as_the_rules_say(world: World) -> None:
    world.rules = replace(world.rules, estimate_every=timedelta(seconds=10))
    await world.ran(gpus=2, nodes=2)
    planner = await world.planner()
    first = await world.submitted()
    await planner.cycle()
    await planner.publish_estimates()
    second = await world.submitted()
    await planner.cycle()
    await planner.publish_estimates()

    assert (await told(world)).keys() == {first}
    world.clock.go_on(timedelta(seconds=10))
    await planner.publish_estimates()
    assert (await told(world)).keys() == {first, second}


async def test_who_is_just_being_given_a_slot_is_told_that(world: World) -> None:
    """Not a guess before: that takes long where many wait. But nobody is left without a word for long."""
    world.rules = replace(world.rules, estimate_every=SECOND, slot_batch=1)
    await world.ran(gpus=2, nodes=2)
    first, second = await many(world, 2, gpus=2, nodes=2)
    planner = await world.planner()
    await planner.cycle()
    assert await planner.give_slots()
    await planner.publish_estimates()
    assert await told(world) == {}
    world.clock.go_on(9 * SECOND)
    await planner.publish_estimates()
    assert await told(world) == {}
    world.clock.go_on(SECOND)
    await planner.publish_estimates()
    assert (await told(world)).keys() == {first, second}


async def test_what_is_told_is_the_slot_as_soon_as_there_is_one(world: World) -> None:
    world.rules = replace(world.rules, estimate_every=SECOND, slot_batch=1)
    await world.ran(gpus=2, nodes=2)
    waiting = await many(world, 2, gpus=2, nodes=2)
    planner = await world.planner()
    more = True
    while more:
        assert await told(world) == {}
        await planner.cycle()
        more = await planner.give_slots()
        await planner.publish_estimates()
    views = [await world.view(job_id) for job_id in waiting]
    assert [view.estimated_start_at for view in views] == [view.promised_start_at for view in views]
    assert (await told(world)).keys() == {*waiting}


async def test_the_last_who_waits_no_more_is_told_nothing_more(world: World) -> None:
    """And what an earlier planner told goes with the first look of the next, though nobody waits."""
    await world.ran(gpus=2, nodes=2)
    [job_id] = await many(world, 1)
    planner = await world.planner()
    await planner.cycle()
    await planner.publish_estimates()
    assert (await told(world)).keys() == {job_id}
    async with world.uow() as uow:
        await cancel(uow, world.who, job_id, None, world.clock.now())
        await sql(
            uow,
            "INSERT INTO wait_estimates (reservation_id, position, reason_code, reason, planned_at) "
            "VALUES (:id, 1, 'waiting_for_gpus', 'x', now())",
            id=job_id,
        )
    planner = await world.planner()
    await planner.cycle()
    await planner.publish_estimates()
    assert await told(world) == {}
    [again] = await many(world, 1)
    await planner.cycle()
    await planner.publish_estimates()
    assert (await told(world)).keys() == {again}


async def test_news_of_a_freed_card_does_not_wait_behind_a_backlog(world: World) -> None:
    """A new leader reads the database; messages older than that are forgotten unread, broken ones are not."""
    ids = await many(world, 200, gpu_type="none-such")
    async with world.uow() as uow:
        broken = [{"kind": "submitted", "id": 7}, {"kind": "changed", "id": "x" * 65}, {"kind": "inventory", "v": 2}]
        await uow.queue.send(QueueName.GPU_JOBS, [{"v": 1, **body} for body in broken])
    [job] = await many(world, 1)
    world.rules = replace(world.rules, messages=10, max_reads=1)
    planner = await world.planner()
    assert (await planner.cycle()).started == 1
    await planner.cycle()
    assert (await world.row(job)).status is JobStatus.STARTING
    assert set(await statuses(world, ids)) == {JobStatus.QUEUED}
    async with world.uow() as uow:
        assert await uow.queue.read(QueueName.GPU_JOBS, visibility=HOUR, limit=1000) == []
        assert len(await uow.queue.dead_letters(QueueName.GPU_JOBS, 10)) == len(broken)


async def test_a_long_backlog_that_comes_later_is_not_read_to_its_end(world: World) -> None:
    world.rules = replace(world.rules, messages=2)
    planner = await world.planner()
    await drained(planner)
    waiting = await many(world, 300, gpu_type="none-such")
    [job] = await many(world, 1)
    cycles = 0
    while (await world.row(job)).status is JobStatus.QUEUED:
        await planner.cycle()
        cycles += 1
        assert cycles < 30
    assert set(await statuses(world, waiting)) == {JobStatus.QUEUED}


async def test_a_deposed_planner_forgets_no_message(world: World) -> None:
    """What it forgot, its successor would never hear of: one of the inventory, one of the job."""
    planner = await world.planner()
    await world.planner()
    await many(world, 1)
    with pytest.raises(LostLeadershipError):
        await planner.cycle()
    assert await backlog(world) == 2


async def test_a_backlog_is_forgotten_in_parts_and_nobody_waits_for_the_last(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_and_allocate, "_FORGOTTEN_AT_ONCE", 5)
    world.rules = replace(world.rules, messages=2)
    await many(world, 100, gpu_type="none-such")
    [job] = await many(world, 1)
    planner = await world.planner()
    assert (await planner.cycle()).started == 1
    assert await backlog(world) > 80
    assert (await world.row(job)).status is JobStatus.STARTING
    await drained(planner)
    assert await backlog(world) == 0


async def backlog(world: World) -> int:
    async with world.uow() as uow:
        [depth] = [metric.depth for metric in await uow.queue.metrics() if metric.queue == QueueName.GPU_JOBS.value]
    return depth


async def test_a_plan_that_is_ended_to_break_a_deadlock_is_made_anew(world: World) -> None:
    planner = await world.planner()
    job = await world.submitted()

    async def a_lock_is_waited_for() -> bool:
        waits = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        return bool((await world.sql(waits)).all())

    async with world.uow() as uow:
        # The transaction that has waited for longer than this looks for a deadlock, and is the one to be ended.
        await sql(uow, "SET LOCAL deadlock_timeout = '1min'")
        await sql(uow, "SELECT FROM reservations FOR UPDATE")
        cycle = asyncio.create_task(planner.cycle())
        await eventually(a_lock_is_waited_for)
        await sql(uow, "SELECT FROM planner_lease FOR UPDATE")
    assert (await cycle).conflict
    assert (await planner.cycle()).started == 1
    assert (await world.row(job)).status is JobStatus.STARTING

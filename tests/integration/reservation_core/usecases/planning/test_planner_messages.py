"""The planner's messages on a real database: broken ones, and those of a plan that was not written."""

from dataclasses import replace
from datetime import timedelta

import pytest

from reservation_core.domain.statuses import JobStatus
from reservation_core.ports.planning.planning import LostLeadershipError
from reservation_core.ports.queues import QueueName
from tests.integration.reservation_core.usecases.planning.test_planner import drained
from tests.integration.reservation_core.usecases.world import World

SECOND = timedelta(seconds=1)


async def test_messages_that_can_not_be_read_go_to_the_dead_letters_and_stop_nobody(world: World) -> None:
    world.rules = replace(world.rules, max_reads=1)
    async with world.uow() as uow:
        await uow.queue.send(
            QueueName.GPU_JOBS, [{"kind": "nonsense"}, {"v": 1, "kind": "submitted"}, {"v": 99, "kind": "submitted"}]
        )
    job_id = await world.submitted()
    await world.plan()
    assert (await world.row(job_id)).status is JobStatus.STARTING
    async with world.uow() as uow:
        letters = await uow.queue.dead_letters(QueueName.GPU_JOBS, 10)
    assert len(letters) == 3
    assert all("JobMessage" in letter.error or "must name an id" in letter.error for letter in letters)


@pytest.mark.parametrize(
    "body",
    ["NULL", """'{"v": 1, "x": 1e5000}'""", "repeat('[', 3000) || repeat(']', 3000)", f"""'{{"x": {"1" * 400}.5}}'"""],
    ids=["nothing", "long number", "deep", "large number"],
)
async def test_what_python_can_not_read_stops_nobody_either(world: World, body: str) -> None:
    world.rules = replace(world.rules, max_reads=1)
    planner = await world.planner()
    await drained(planner)
    await world.sql(f"INSERT INTO pgmq.q_gpu_jobs (vt, message) SELECT clock_timestamp(), CAST({body} AS jsonb)")
    job_id = await world.submitted()
    assert [(await planner.cycle()).messages for _ in range(2)] == [2, 0]
    assert (await world.row(job_id)).status is JobStatus.STARTING
    kept = await world.sql(f"SELECT message = coalesce(CAST({body} AS jsonb), 'null') FROM pgmq.q_gpu_jobs_dlq")
    assert [list(row) for row in kept] == [[True]]
    async with world.uow() as uow:
        [letter] = await uow.queue.dead_letters(QueueName.GPU_JOBS, 10)
    assert "not a JobMessage" in letter.error


async def test_a_message_that_can_not_be_read_is_tried_again_after_a_pause(world: World) -> None:
    planner = await world.planner()
    await drained(planner)
    async with world.uow() as uow:
        await uow.queue.send(QueueName.GPU_JOBS, [{"kind": "nonsense"}])
    assert [(await planner.cycle()).messages for _ in range(2)] == [1, 0]
    await world.sql("UPDATE pgmq.q_gpu_jobs SET vt = clock_timestamp()")
    assert [(await planner.cycle()).messages for _ in range(2)] == [1, 0]
    async with world.uow() as uow:
        [letter] = await uow.queue.dead_letters(QueueName.GPU_JOBS, 10)
    assert letter.read_count == world.rules.max_reads == 2


async def test_a_message_waits_for_no_time_after_a_plan_that_was_not_written(world: World) -> None:
    old = await world.planner()
    await drained(old)
    await world.planner()
    await world.submitted()
    with pytest.raises(LostLeadershipError):
        await old.cycle()
    async with world.uow() as uow:
        [message] = await uow.queue.read(QueueName.GPU_JOBS, visibility=SECOND, limit=10)
    assert message.read_count == 1

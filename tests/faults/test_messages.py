"""Messages are triggers, not the truth: doubled, reordered, foreign and broken ones change nothing that is true."""

import json
import random
from datetime import timedelta

from reservation_core.domain.statuses import JobStatus
from reservation_core.ports.queues import DeadLetter, QueueName
from tests.faults.systems.invariants import assert_never_doubled, assert_nothing_left, outcomes, waiting_messages
from tests.faults.systems.system import System, mixed
from tests.waiting import eventually

JOBS, OPERATIONS = QueueName.GPU_JOBS, QueueName.POD_OPERATIONS
READS = 5
BROKEN: list[object] = [
    {},
    [],
    ["create"],
    "create",
    7,
    None,
    True,
    {"v": 1},
    {"v": 2, "kind": "submitted", "op": "create", "id": "job-x", "attempt": 1},
    {"v": 1, "kind": "unheard-of", "op": "unheard-of", "id": "job-x", "attempt": 1},
    {"v": 1, "kind": "submitted", "op": "create", "id": 7, "attempt": "1"},
    {"v": 1, "kind": "changed", "op": "delete", "id": "j" * 65, "attempt": 1.5},
    {"v": 1, "kind": ["changed"], "op": {"op": "delete"}, "id": ["job-x"], "attempt": -1},
    {"v": "1", "kind": "changed", "op": "delete", "id": "x" * 200_000, "attempt": 0},
    {"v": 1, "kind": None, "op": None, "id": None, "attempt": None, "deep": [[[[[[[[[[]]]]]]]]]]},
]
"""None of these is a message of either queue."""


def operation(op: str, job_id: str, attempt: int = 1) -> dict[str, object]:
    """A pod operation."""
    return {"v": 1, "op": op, "id": job_id, "attempt": attempt}


def look(kind: str, job_id: str | None = None) -> dict[str, object]:
    """A message to the planner."""
    return {"v": 1, "kind": kind, "id": job_id}


def as_text(body: object) -> str:
    """A body in one form, whatever the order of its keys."""
    return json.dumps(body, sort_keys=True)


async def dead_letters(system: System, queue: QueueName) -> list[DeadLetter]:
    """What could not be handled."""
    async with system.runtime.uow() as uow:
        return await uow.queue.dead_letters(queue, 1000)


async def quiet(system: System) -> None:
    """Wait until every message has been handled (or buried)."""

    async def handled() -> bool:
        return not await waiting_messages(system, dead_letters=False)

    await eventually(handled)


async def test_broken_messages_end_with_their_error_and_hold_up_nobody(system: System) -> None:
    for queue in QueueName:
        await system.send(queue, BROKEN)
    with system.processor(visibility_s=600):
        [job_id] = await system.submit(system.new(system.records.workload()))
        await system.reaches(job_id, JobStatus.SUCCEEDED)
        assert await dead_letters(system, JOBS) == []  # they have been tried once: nobody waited for more
    for queue in QueueName:
        await system.rows(f"UPDATE pgmq.q_{queue.value} SET vt = clock_timestamp()")
    with system.processor():
        await quiet(system)
        for queue in QueueName:
            letters = await dead_letters(system, queue)
            assert sorted(as_text(letter.body) for letter in letters) == sorted(map(as_text, BROKEN))
            # A text that is no message at all will be none at the next try either: where that is known, it is buried at
            # once.
            assert {letter.read_count for letter in letters} == {1 if queue is QueueName.NOTIFICATIONS else READS}
            assert all("not a" in letter.error and len(letter.error) < 5_000 for letter in letters)
        [after] = await system.submit(system.new(system.records.workload()))
        await system.reaches(after, JobStatus.SUCCEEDED)
        await assert_nothing_left(system, dead_letters=True)
    await assert_never_doubled(system)


async def test_dead_letters_can_be_driven_again(system: System) -> None:
    """Nothing else would end this job: its delete is among the dead letters, and no resync is due."""
    async with system.working():
        [job_id] = await system.submit(system.new(system.records.workload(work="sleep 600")))
        await system.reaches(job_id, JobStatus.RUNNING)
        await quiet(system)
    await system.cancel(job_id)
    async with system.runtime.uow() as uow:
        [message] = await uow.queue.read(OPERATIONS, visibility=timedelta(seconds=1), limit=10)
        await uow.queue.bury(OPERATIONS, message, "a bug that has been repaired since")
    async with system.working(resync_s=3600):
        [other] = await system.submit(system.new(system.records.workload()))
        await system.reaches(other, JobStatus.SUCCEEDED)
        assert await system.status(job_id) is JobStatus.ENDING
        async with system.runtime.uow() as uow:
            assert await uow.queue.redrive(OPERATIONS, None) == 1
        await system.reaches(job_id, JobStatus.CANCELLED)
        await assert_nothing_left(system)


async def test_old_and_foreign_messages_change_nothing(system: System) -> None:
    """Creates for what is over, deletes and deadlines for what lives or waits, other attempts, ids that never were."""
    records = system.records
    async with system.working():
        done, failed, running, waiting = await system.submit(
            system.new(records.workload()),
            system.new(records.workload(9)),
            system.new(records.workload(work="sleep 600"), gpus=4),
            system.new(records.workload(), gpu_type="none-such"),
        )
        await system.reaches(done, JobStatus.SUCCEEDED)
        await system.reaches(failed, JobStatus.FAILED)
        before = await system.reaches(running, JobStatus.RUNNING)
        everyone = (
            done,
            failed,
            running,
            waiting,
            "job-neverwas",
            "bkg-neverwas",
            "'; DROP TABLE nodes; --",
            "../../etc",
        )
        operations = [
            operation(op, job_id, attempt)
            for job_id in everyone
            for op in ("create", "delete", "deadline")
            for attempt in (1, 2, 10**30)
        ]
        looks = [look(kind, job_id) for job_id in everyone for kind in ("submitted", "changed")] + [
            look("inventory")
        ] * 5
        source = mixed(1)
        for _ in range(3):
            source.shuffle(operations)
            source.shuffle(looks)
            await system.send(OPERATIONS, operations)
            await system.send(JOBS, looks)
        [later] = await system.submit(system.new(records.workload()))
        await system.reaches(later, JobStatus.SUCCEEDED)
        await quiet(system)
        after = await system.job(running)
        assert (after.reservation, after.allocations) == (before.reservation, before.allocations)
        assert await system.status(waiting) is JobStatus.QUEUED
        assert (running, 0) in records.open()
        assert await dead_letters(system, JOBS) == await dead_letters(system, OPERATIONS) == []
        for job_id in (running, waiting):
            await system.cancel(job_id)
        await system.reaches(running, JobStatus.CANCELLED)
        await assert_nothing_left(system)
    seen = await outcomes(system)
    assert (seen[done], seen[failed]) == ((JobStatus.SUCCEEDED, 0), (JobStatus.FAILED, 9))
    assert records.started() == {done, failed, running, later}
    await assert_never_doubled(system)


async def test_thousands_of_doubles_change_nothing(system: System) -> None:
    ids = await system.submit(*(system.new(system.records.workload(number % 2)) for number in range(20)))
    doubles: list[object] = [look(kind, job_id) for job_id in ids for kind in ("submitted", "changed")]
    await system.send(JOBS, doubles * 150)
    await system.send(OPERATIONS, [operation(op, job_id) for job_id in ids for op in ("create", "delete")] * 25)
    async with system.working(pod_operations_per_s=10_000):
        for job_id in ids:
            await system.reaches(job_id, JobStatus.SUCCEEDED, JobStatus.FAILED)
        await quiet(system)
        await assert_nothing_left(system)
    assert [code for _, code in (await outcomes(system)).values()].count(1) == 10
    await assert_never_doubled(system)


async def test_messages_in_any_order_lead_to_the_same_end(system: System) -> None:
    """Messages are lost, doubled and shuffled under way; the rows are what counts, resync and reload what repairs."""
    source = mixed(2)
    async with system.working(resync_s=0.3, reload_s=0.5):
        ids = await system.submit(
            *(
                system.new(system.records.workload(number % 3, work="sleep 0.05"), gpus=1 + number % 3)
                for number in range(24)
            )
        )

        async def ended() -> bool:
            for queue in QueueName:
                await stir(system, queue, source)
            return await system.all_final()

        await eventually(ended, timeout=90)
        await assert_nothing_left(system)
    assert [(await outcomes(system))[job_id][1] for job_id in ids] == [number % 3 for number in range(24)]
    await assert_never_doubled(system)


async def stir(system: System, queue: QueueName, source: random.Random) -> None:
    """Take some of the visible messages away, put others in twice, in another order."""
    taken = await system.rows(f"DELETE FROM pgmq.q_{queue.value} WHERE vt <= clock_timestamp() RETURNING message")
    bodies = [row.message for row in taken]
    chosen = [body for body in bodies for _ in range(source.choice((0, 1, 2)))]
    source.shuffle(chosen)
    if chosen:
        await system.send(queue, chosen)

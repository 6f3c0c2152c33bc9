"""Pod operations: the row says what should be; late, doubled and stale messages do nothing."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from reservation_core.contracts.queue_messages import PodOperation
from reservation_core.domain.changes import StartTimedOut
from reservation_core.domain.jobs.lifecycle import decide
from reservation_core.domain.model import PodPhase, PodSpec, Reason
from reservation_core.domain.statuses import JobStatus, ReasonCode
from reservation_core.ports.cluster import ClusterUnavailableError, PodRefusedError
from reservation_core.ports.queues import MessageNotDueError
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.nodes.update_inventory import update_inventory
from reservation_core.usecases.running.perform_pod_operations import LaunchRules, perform
from tests.integration.reservation_core.usecases.running.test_observe import TRACE, Sent, refuse_at_commit
from tests.integration.reservation_core.usecases.world import ALLOWANCE, LAUNCH, World, pod
from tests.waiting import PATIENCE_S


async def told(world: World, op: str, job_id: str, attempt: int = 1, rules: LaunchRules = LAUNCH) -> None:
    operation = PodOperation.model_validate({"op": op, "id": job_id, "attempt": attempt})
    await perform(world.uow, world.cluster, operation, world.clock, rules)


async def cancelled(world: World, job_id: str) -> None:
    async with world.uow() as uow:
        await cancel(uow, world.who, job_id, None, world.clock.now())


async def test_a_create_that_comes_after_the_cancel_creates_nothing(world: World) -> None:
    job_id = await world.submitted()
    await world.plan()
    await cancelled(world, job_id)
    await told(world, "delete", job_id)
    assert (await world.row(job_id)).status is JobStatus.CANCELLED
    await told(world, "create", job_id)
    assert world.cluster.created == []


@pytest.mark.parametrize("op", ["create", "delete", "deadline"])
async def test_an_operation_of_another_attempt_does_nothing(world: World, op: str) -> None:
    job_id = await world.ran()
    await cancelled(world, job_id)
    world.cluster.created.clear()
    await told(world, op, job_id, attempt=2)
    await told(world, op, "job-nobody")
    assert (world.cluster.created, world.cluster.deleted, world.cluster.deadlines) == ([], [], {})


@pytest.mark.parametrize("op", ["create", "delete"])
async def test_a_running_job_is_neither_created_again_nor_deleted(world: World, op: str) -> None:
    job_id = await world.ran()
    world.cluster.created.clear()
    await told(world, op, job_id)
    assert (world.cluster.created, world.cluster.deleted) == ([], [])


async def test_a_refused_pod_fails_the_job_and_removes_its_siblings(world: World) -> None:
    world.cluster.refusal = Reason(ReasonCode.START_FAILED, "There is no such image.")
    job_id = await world.submitted(nodes=2)
    await world.plan()
    world.cluster.show(pod(job_id, 0), PodPhase.RUNNING)
    await world.operate()
    row = await world.row(job_id)
    assert (row.status, row.reason) == (JobStatus.FAILED, world.cluster.refusal)
    assert world.cluster.pods == {}
    assert not any(card.held for card in await world.cards(job_id))


async def test_who_is_not_taken_yet_is_told_why_and_tried_again(world: World) -> None:
    world.cluster.not_now = Reason(ReasonCode.UNSCHEDULABLE, "The quota is used up: pods=3.")
    job_id = await world.submitted(nodes=2)
    await world.plan()
    for _ in range(2):
        with pytest.raises(MessageNotDueError, match="The quota is used up") as told_later:
            await told(world, "create", job_id, rules=replace(LAUNCH, late=timedelta(minutes=1)))
        assert told_later.value.after == LAUNCH.not_now_pause
    row = await world.row(job_id)
    assert (row.status, row.reason, row.unsettled_until) == (JobStatus.STARTING, world.cluster.not_now, None)
    assert (await world.kinds(job_id)).count("start_delayed") == 1
    # Its start allowance says that as the cause.
    async with world.uow() as uow:
        [locked] = (await uow.reservations.lock([job_id])).values()
        event = StartTimedOut(ALLOWANCE, 1)
    change = decide(locked, event, world.clock.now())
    assert change is not None
    assert change.after.reason == world.cluster.not_now
    world.cluster.not_now = None
    await told(world, "create", job_id)
    assert {spec.name.rank for spec in world.cluster.created} == {0, 1}


async def test_a_cluster_that_can_not_be_asked_concludes_nothing(world: World) -> None:
    job_id = await world.ran()
    await cancelled(world, job_id)
    world.cluster.down = True
    with pytest.raises(ClusterUnavailableError):
        await told(world, "delete", job_id)
    assert (await world.row(job_id)).status is JobStatus.ENDING
    assert all(card.held for card in await world.cards(job_id))


async def test_gpus_stay_held_until_the_pod_is_gone(world: World) -> None:
    world.cluster.obedient = False
    job_id = await world.ran(gpus=2, nodes=2)
    waiting = await world.submitted()
    await cancelled(world, job_id)
    await world.operate()
    await world.plan()
    assert (await world.row(waiting)).status is JobStatus.QUEUED
    assert all(card.held for card in await world.cards(job_id))
    world.cluster.pods.clear()
    await told(world, "delete", job_id)
    world.clock.go_on(timedelta(seconds=1))
    await world.plan()
    assert (await world.row(waiting)).status is JobStatus.STARTING


async def third_node(world: World) -> None:
    world.cluster.cards["c"] = 2
    await update_inventory(world.uow, world.cluster, world.clock)


async def test_a_gangs_pods_are_created_at_the_same_time_and_rank_0_when_they_are(world: World) -> None:
    await third_node(world)
    both = asyncio.Barrier(2)

    async def meet(spec: PodSpec) -> None:
        if spec.name.rank:
            await both.wait()
        else:
            assert {pod.name.rank for pod in world.cluster.created} == {1, 2}

    world.cluster.on_create = meet
    async with asyncio.timeout(PATIENCE_S):
        job_id = await world.started(nodes=3)
    assert {spec.name for spec in world.cluster.created} == {pod(job_id, rank) for rank in range(3)}


async def test_rank_0_is_not_made_when_another_can_not_be(world: World) -> None:
    """It would begin its work, and begin it once more when the gang is tried again."""

    async def refuse(spec: PodSpec) -> None:
        if spec.name.rank:
            raise PodRefusedError(Reason(ReasonCode.START_FAILED, "There is no room."))

    world.cluster.on_create = refuse
    job_id = await world.submitted(nodes=2)
    await world.plan()
    await world.operate()
    assert world.cluster.created == []
    assert (await world.row(job_id)).status is JobStatus.FAILED


async def test_a_create_that_is_under_way_when_another_is_refused_is_waited_for(world: World) -> None:
    await third_node(world)
    both = asyncio.Barrier(2)

    async def first_refuses(spec: PodSpec) -> None:
        await both.wait()
        if spec.name.rank == 1:
            raise PodRefusedError(Reason(ReasonCode.START_FAILED, "There is no such image."))
        for _ in range(20):  # the refusal is known to everybody by now
            await asyncio.sleep(0)

    world.cluster.on_create = first_refuses
    job_id = await world.submitted(nodes=3)
    await world.plan()
    await world.operate()
    assert [spec.name.rank for spec in world.cluster.created] == [2]
    assert (await world.row(job_id)).status is JobStatus.FAILED
    assert world.cluster.pods == {}


async def test_what_began_to_run_after_it_was_taken_back_is_not_run_again(world: World) -> None:
    job_id = await world.started()
    async with world.uow() as uow:
        [row] = (await uow.reservations.lock([job_id])).values()
        change = decide(row, StartTimedOut(timedelta(minutes=2), 3), world.clock.now())
        assert change is not None
        await uow.reservations.apply([change])
    world.cluster.show(pod(job_id), PodPhase.RUNNING, started_at=world.clock.now())
    await world.operate()
    after = await world.row(job_id)
    assert (after.status, after.reason.code, after.attempt) == (JobStatus.FAILED, ReasonCode.START_TIMEOUT, 1)
    assert not any(card.held for card in await world.cards(job_id))


async def test_what_has_finished_lets_go_of_its_cards_whatever_keeps_its_object(world: World) -> None:
    world.cluster.obedient = False
    job_id = await world.ran(nodes=2)
    await cancelled(world, job_id)
    await world.operate()
    world.cluster.show(pod(job_id, 0), PodPhase.FINISHED, exit_code=143)
    await told(world, "delete", job_id)
    assert all(card.held for card in await world.cards(job_id))
    world.cluster.show(pod(job_id, 1), PodPhase.FINISHED, exit_code=143)
    await told(world, "delete", job_id)
    assert (await world.row(job_id)).status is JobStatus.CANCELLED
    assert not any(card.held for card in await world.cards(job_id))


async def test_pods_that_could_not_be_made_before_their_range_was_over_are_given_another(world: World) -> None:
    """A cluster that was silent for long: made now, they would be ended at once as if they had had their time."""
    job_id = await world.submitted(duration=60)
    await world.plan()
    world.clock.go_on(ALLOWANCE + timedelta(seconds=60))
    await world.operate()
    row = await world.row(job_id)
    assert (row.status, row.reason.code, world.cluster.created) == (JobStatus.QUEUED, ReasonCode.REQUEUED, [])
    await world.plan()
    await world.operate()
    assert [spec.name for spec in world.cluster.created] == [pod(job_id, attempt=2)]


async def test_a_late_word_to_make_pods_that_run_ends_nothing(world: World) -> None:
    job_id = await world.started(duration=60)
    world.cluster.show(pod(job_id), PodPhase.RUNNING, started_at=world.clock.now())
    async with world.uow() as uow:
        await uow.reservations.resend([job_id])
    world.clock.go_on(ALLOWANCE + timedelta(seconds=60))
    await world.operate()
    assert (await world.row(job_id)).status is JobStatus.STARTING


@pytest.mark.parametrize("cause", ["an unknown pod", "its range is over", "a refusal"])
async def test_a_failed_start_has_its_span_once_it_is_committed(world: World, cause: str) -> None:
    job_id = await world.submitted(duration=60)
    await world.plan()
    await world.sql("UPDATE reservations SET trace = :trace WHERE id = :id", trace=TRACE, id=job_id)
    match cause:
        case "an unknown pod":
            [gpu] = await world.cards(job_id)
            await world.sql(
                "INSERT INTO unknown_pods (name, reservation_id, node, gpu_indices, detail, first_seen_at) "
                "VALUES ('job-x-1-0', 'job-x', :node, ARRAY[0, 1, 2, 3], 'x', now())",
                node=gpu.node,
            )
        case "its range is over":
            world.clock.go_on(ALLOWANCE + timedelta(seconds=60))
        case _:
            world.cluster.refusal = Reason(ReasonCode.START_FAILED, "There is no such image.")
    operation = PodOperation.model_validate({"op": "create", "id": job_id, "attempt": 1})
    traces = Sent()
    for statement in refuse_at_commit("ending"):
        await world.sql(statement)
    try:
        with pytest.raises(DatabaseUnavailableError):
            await perform(world.uow, world.cluster, operation, world.clock, LAUNCH, traces)
    finally:
        await world.sql("DROP FUNCTION refuse_changes CASCADE")
    assert ((await world.row(job_id)).status, traces.spans) == (JobStatus.STARTING, [])
    await perform(world.uow, world.cluster, operation, world.clock, LAUNCH, traces)
    assert ((await world.row(job_id)).status, traces.spans) == (JobStatus.ENDING, ["wait for GPUs", "create pods"])

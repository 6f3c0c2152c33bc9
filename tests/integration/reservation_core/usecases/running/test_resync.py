"""The comparison of rows and pods: each difference is repaired, and a cluster that is down is not one."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest

from reservation_core.domain.model import PodPhase, PodStatus
from reservation_core.domain.statuses import JobStatus, ReasonCode
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.queues import QueueName
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.jobs.extend import extend
from reservation_core.usecases.running import resync
from reservation_core.usecases.running.observe import observe
from reservation_core.usecases.running.resync import Resync, ResyncReport, ResyncRules
from tests.integration.reservation_core.usecases.world import LAUNCH, World, pod

PATIENCE = timedelta(seconds=5)
RULES = ResyncRules(
    starting_patience=PATIENCE,
    ending_patience=2 * PATIENCE,
    grace=timedelta(seconds=1),
    belt=LAUNCH.belt,
    max_starts=3,
)


async def once(world: World) -> ResyncReport:
    return await Resync(world.uow, world.cluster, world.clock, RULES).once()


async def lose_messages(world: World) -> None:
    async with world.uow() as uow:
        messages = await uow.queue.read(QueueName.POD_OPERATIONS, visibility=timedelta(seconds=1), limit=100)
        await uow.queue.delete(QueueName.POD_OPERATIONS, [message.id for message in messages])


async def test_where_all_is_as_it_should_be_nothing_is_done(world: World) -> None:
    await world.ran()
    assert await once(world) == ResyncReport(resent=0, orphans=0, observed=0)
    assert world.cluster.deleted == []


async def test_a_lost_create_is_sent_again_after_a_while(world: World) -> None:
    job_id = await world.submitted()
    await world.plan()
    await lose_messages(world)
    world.clock.go_on(PATIENCE)
    assert (await once(world)).resent == 0
    world.clock.go_on(timedelta(seconds=1))
    assert (await once(world)).resent == 1
    assert (await once(world)).resent == 0  # it waits in the queue
    await world.operate()
    assert [spec.name for spec in world.cluster.created] == [pod(job_id)]
    assert (await once(world)).resent == 0


async def test_a_lost_delete_is_sent_again_after_a_while(world: World) -> None:
    job_id = await world.ran()
    async with world.uow() as uow:
        await cancel(uow, world.who, job_id, None, world.clock.now())
    await lose_messages(world)
    world.clock.go_on(2 * PATIENCE)
    assert (await once(world)).resent == 0
    world.clock.go_on(timedelta(seconds=1))
    assert (await once(world)).resent == 1
    await world.operate()
    assert (await world.row(job_id)).status is JobStatus.CANCELLED


async def test_a_missed_start_and_a_missed_end_are_caught_up(world: World) -> None:
    job_id = await world.started()
    world.cluster.show(pod(job_id), PodPhase.RUNNING, started_at=world.clock.now())
    await once(world)
    assert (await world.row(job_id)).status is JobStatus.RUNNING
    world.cluster.show(pod(job_id), PodPhase.FINISHED, exit_code=0)
    await once(world)
    assert (await world.row(job_id)).outcome is JobStatus.SUCCEEDED


async def test_a_running_job_without_its_pod_is_lost(world: World) -> None:
    job_id = await world.ran(nodes=2)
    world.cluster.show(pod(job_id, 1), PodPhase.GONE)
    await once(world)
    row = await world.row(job_id)
    assert (row.status, row.reason.code) == (JobStatus.ENDING, ReasonCode.POD_LOST)


async def test_an_ending_job_without_pods_is_closed(world: World) -> None:
    job_id = await world.ran()
    async with world.uow() as uow:
        await cancel(uow, world.who, job_id, None, world.clock.now())
    world.cluster.pods.clear()
    await once(world)
    assert (await world.row(job_id)).status is JobStatus.CANCELLED
    assert not any(card.held for card in await world.cards(job_id))


async def test_pods_that_no_row_accounts_for_are_removed(world: World) -> None:
    job_id = await world.ran()
    for name in (pod("job-nobody"), pod(job_id, attempt=0)):
        world.cluster.show(name, PodPhase.RUNNING)
    rules = replace(RULES, end_unknown=True)
    assert (await Resync(world.uow, world.cluster, world.clock, rules).once()).orphans == 2
    assert sorted(world.cluster.deleted) == sorted([str(pod("job-nobody")), str(pod(job_id, attempt=0))])
    assert (await world.row(job_id)).status is JobStatus.RUNNING


async def test_a_cluster_that_can_not_be_asked_concludes_nothing(world: World) -> None:
    job_id = await world.ran()
    world.cluster.pods.clear()
    world.cluster.down = True
    with pytest.raises(ClusterUnavailableError):
        await once(world)
    assert (await world.row(job_id)).status is JobStatus.RUNNING


async def test_a_lost_deadline_is_told_again_once(world: World) -> None:
    job_id = await world.ran()
    async with world.uow() as uow:
        view = await extend(uow, world.who, job_id, timedelta(hours=1), None, timedelta(hours=9), world.clock.now())
    await lose_messages(world)
    comparison = Resync(world.uow, world.cluster, world.clock, RULES)
    await comparison.once()
    assert view.reservation.range_end is not None
    assert world.cluster.deadlines == {str(pod(job_id)): view.reservation.range_end + LAUNCH.belt}
    world.cluster.deadlines.clear()
    await comparison.once()
    assert world.cluster.deadlines == {}


async def test_deadlines_that_were_told_are_not_told_again_when_the_cluster_falls_silent_between(world: World) -> None:
    job_ids = [await world.ran() for _ in range(3)]
    comparison = Resync(world.uow, world.cluster, world.clock, RULES)
    told: list[str] = []

    async def tell(name: str, _deadline: object) -> None:
        if len(told) == 2:
            raise ClusterUnavailableError("away")
        told.append(name)

    with mock.patch.object(world.cluster, "extend_deadline", tell), pytest.raises(ClusterUnavailableError):
        await comparison.once()
    await comparison.once()
    assert sorted([*told, *world.cluster.deadlines]) == sorted(str(pod(job_id)) for job_id in job_ids)


async def test_however_much_is_to_be_observed_few_rows_are_locked_at_once(world: World) -> None:
    job_ids = [await world.ran() for _ in range(3)]
    world.cluster.pods.clear()
    together: list[int] = []

    async def seen(*arguments: Any) -> list[PodStatus]:
        together.append(len(arguments[2]))
        return await observe(*arguments)

    with mock.patch.multiple(resync, observe=seen, OBSERVED_AT_ONCE=2):
        assert (await once(world)).observed == 3
    assert together == [2, 1]
    assert {(await world.row(job_id)).reason.code for job_id in job_ids} == {ReasonCode.POD_LOST}

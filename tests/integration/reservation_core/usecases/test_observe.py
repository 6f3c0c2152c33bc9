"""What pods are seen to do, in every order that a cluster may tell it."""

from datetime import timedelta

from reservation_core.domain.model import JobStatus, PodPhase, PodStatus, Reason, ReasonCode
from reservation_core.usecases.cancel import cancel
from tests.integration.reservation_core.usecases.world import World, pod

RUNNING, FINISHED, GONE = PodPhase.RUNNING, PodPhase.FINISHED, PodPhase.GONE


async def test_a_gang_runs_when_all_of_it_runs(world: World) -> None:
    job_id = await world.started(nodes=2)
    early = world.clock.now()
    await world.see(world.cluster.show(pod(job_id, 0), RUNNING, started_at=early))
    assert (await world.row(job_id)).status is JobStatus.STARTING
    late = world.clock.go_on(timedelta(seconds=5))
    await world.see(world.cluster.show(pod(job_id, 1), RUNNING, started_at=late))
    row = await world.row(job_id)
    assert (row.status, row.started_at) == (JobStatus.RUNNING, late)


async def test_a_gang_has_succeeded_when_its_last_pod_has(world: World) -> None:
    job_id = await world.ran(nodes=2)
    await world.see(world.cluster.show(pod(job_id, 1), FINISHED, exit_code=0))
    assert (await world.row(job_id)).status is JobStatus.RUNNING
    await world.see(world.cluster.show(pod(job_id, 0), FINISHED, exit_code=0))
    assert (await world.row(job_id)).outcome is JobStatus.SUCCEEDED


async def test_one_failure_ends_the_gang_and_its_gpus_wait_for_the_last_pod(world: World) -> None:
    world.cluster.obedient = False
    job_id = await world.ran(nodes=2)
    await world.see(world.cluster.show(pod(job_id, 1), FINISHED, exit_code=3))
    row = await world.row(job_id)
    assert (row.status, row.outcome, row.exit_code) == (JobStatus.ENDING, JobStatus.FAILED, 3)
    await world.operate()
    assert sorted(world.cluster.deleted) == [str(pod(job_id, 0)), str(pod(job_id, 1))]
    await world.see(world.cluster.show(pod(job_id, 1), GONE))
    assert (await world.row(job_id)).status is JobStatus.ENDING
    assert all(card.held for card in await world.cards(job_id))
    await world.see(world.cluster.show(pod(job_id, 0), GONE))
    assert (await world.row(job_id)).status is JobStatus.FAILED
    assert not any(card.held for card in await world.cards(job_id))


async def test_what_is_told_of_a_former_or_unknown_attempt_changes_nothing(world: World) -> None:
    job_id = await world.ran()
    before = await world.row(job_id)
    for attempt in (0, 2):
        for phase in (RUNNING, FINISHED, GONE):
            assert await world.see(PodStatus(pod(job_id, attempt=attempt), phase, exit_code=1)) == []
    assert await world.see(PodStatus(pod("job-nobody"), FINISHED, exit_code=1)) == []
    assert await world.row(job_id) == before


async def test_a_pod_gone_while_running_is_lost(world: World) -> None:
    job_id = await world.ran()
    await world.see(world.cluster.show(pod(job_id), GONE))
    row = await world.row(job_id)
    assert (row.status, row.reason.code) == (JobStatus.ENDING, ReasonCode.POD_LOST)
    await world.operate()
    assert (await world.row(job_id)).status is JobStatus.FAILED


async def test_a_pod_said_to_be_gone_that_is_there_is_not_lost(world: World) -> None:
    job_id = await world.ran()
    before = await world.row(job_id)
    assert await world.see(PodStatus(pod(job_id), GONE)) == []
    assert await world.row(job_id) == before
    async with world.uow() as uow:
        await cancel(uow, world.who, job_id, None, world.clock.now())
    await world.see(PodStatus(pod(job_id), GONE))
    assert (await world.row(job_id)).status is JobStatus.ENDING
    assert all(card.held for card in await world.cards(job_id))


async def test_nothing_is_concluded_while_somebody_is_busy_with_the_pods(world: World) -> None:
    job_id = await world.ran()
    gone = world.cluster.show(pod(job_id), GONE)
    async with world.uow() as uow:
        await uow.hold_pod_lock(job_id)
        assert await world.see(gone) == [gone]
        assert (await world.row(job_id)).status is JobStatus.RUNNING
    assert await world.see(gone) == []
    assert (await world.row(job_id)).status is JobStatus.ENDING


async def test_a_short_pod_seen_only_at_its_end_has_run(world: World) -> None:
    job_id = await world.started()
    begun = world.clock.now()
    world.clock.go_on(timedelta(seconds=3))
    done = world.cluster.show(pod(job_id), FINISHED, started_at=begun, finished_at=world.clock.now(), exit_code=0)
    await world.see(done, world.cluster.show(pod(job_id), GONE))
    row = await world.row(job_id)
    assert (row.status, row.started_at, row.exit_code) == (JobStatus.SUCCEEDED, begun, 0)
    assert await world.kinds(job_id) == ["submitted", "allocated", "started", "finished", "succeeded"]


async def test_a_pod_that_never_ran_has_not_started(world: World) -> None:
    job_id = await world.started()
    refused = Reason(ReasonCode.START_FAILED, "There is no such program.")
    await world.see(
        world.cluster.show(pod(job_id), FINISHED, started_at=world.clock.now(), exit_code=127, reason=refused)
    )
    assert "started" not in await world.kinds(job_id)
    row = await world.row(job_id)
    assert (row.outcome, row.reason, row.started_at) == (JobStatus.FAILED, refused, None)
    await world.operate()
    async with world.uow() as uow:
        newest = await uow.measurements.newest_event(world.clock.now() + timedelta(days=1))
        [ended] = await uow.measurements.ended(0, newest, 10)
    assert (ended.status, ended.started_at) == (JobStatus.FAILED, None)


async def test_the_same_told_twice_changes_nothing_more(world: World) -> None:
    job_id = await world.ran()
    running = PodStatus(pod(job_id), RUNNING, started_at=world.clock.now())
    done = world.cluster.show(pod(job_id), FINISHED, exit_code=0)
    await world.see(done, done, running)
    before = await world.row(job_id)
    await world.see(done, running)
    assert await world.row(job_id) == before
    assert (await world.kinds(job_id)).count("finished") == 1


async def test_many_jobs_are_observed_in_one_go(world: World) -> None:
    jobs = [await world.started() for _ in range(4)]
    await world.see(*(world.cluster.show(pod(i), FINISHED, started_at=world.clock.now(), exit_code=0) for i in jobs))
    assert {(await world.row(job_id)).outcome for job_id in jobs} == {JobStatus.SUCCEEDED}

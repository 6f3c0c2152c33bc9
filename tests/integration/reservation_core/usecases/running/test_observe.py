"""What pods are seen to do, in every order that a cluster may tell it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from reservation_core.domain.model import PodPhase, PodStatus, Reason
from reservation_core.domain.statuses import JobStatus, ReasonCode
from reservation_core.ports.traces import Span
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.running.observe import observe
from tests.integration.reservation_core.usecases.world import MAX_STARTS, World, pod

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
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
    async with world.uow.hold_pods([job_id]):
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


PULL = Reason(ReasonCode.IMAGE_PULL_FAILED, "The image can't be pulled: no such tag.")
EVICTED = Reason(ReasonCode.EVICTED, "The node is being drained.")
DELETED = Reason(ReasonCode.POD_DELETED, "Somebody deleted it.")


async def cancelled(world: World, job_id: str) -> None:
    async with world.uow() as uow:
        await cancel(uow, world.who, job_id, None, world.clock.now())


async def node_of_first(world: World, job_id: str) -> str:
    return (await world.cards(job_id))[0].node


async def test_who_does_not_start_yet_is_told_why_once(world: World) -> None:
    job_id = await world.started()
    pending = world.cluster.show(pod(job_id), PodPhase.PENDING, reason=PULL)
    await world.see(pending, pending)
    await world.see(pending)
    assert (await world.view(job_id)).reservation.reason == PULL
    row = await world.row(job_id)
    assert (row.status, row.reason) == (JobStatus.STARTING, PULL)
    assert (await world.kinds(job_id)).count("start_delayed") == 1
    await world.see(replace(pending, reason=Reason(PULL.code, "Now another tag is missing.")))
    assert (await world.kinds(job_id)).count("start_delayed") == 2
    await world.see(PodStatus(pod(job_id), PodPhase.PENDING))
    assert (await world.row(job_id)).reason.detail == "Now another tag is missing."


async def test_what_would_start_nowhere_fails_at_once(world: World) -> None:
    job_id = await world.started()
    await world.see(world.cluster.show(pod(job_id), PodPhase.PENDING, reason=PULL, hopeless=True))
    await world.operate()
    row = await world.row(job_id)
    assert (row.status, row.reason, row.attempt) == (JobStatus.FAILED, PULL, 1)


async def test_what_two_nodes_say_can_not_start_fails_and_the_first_is_not_waited_for(world: World) -> None:
    job_id = await world.started()
    await world.see(world.cluster.show(pod(job_id), PodPhase.PENDING, reason=PULL, hopeless_here=True))
    await world.operate()
    await world.plan()
    await world.operate()
    row = await world.row(job_id)
    assert (row.status, row.attempt) == (JobStatus.STARTING, 2)
    # What runs, or has ended meanwhile, is none of its business.
    again = world.cluster.show(pod(job_id, attempt=2), PodPhase.PENDING, reason=PULL, hopeless_here=True)
    await world.see(again, again)
    await world.operate()
    row = await world.row(job_id)
    assert (row.status, row.reason.code) == (JobStatus.FAILED, PULL.code)
    assert row.reason.detail == f"{PULL.detail} It was tried 2 times."


async def test_who_could_not_start_waits_first_in_line_and_starts_elsewhere(world: World) -> None:
    job_id = await world.started(gpus=2)
    first = await node_of_first(world, job_id)
    behind = await world.submitted(gpus=2, nodes=2)
    await world.see(world.cluster.show(pod(job_id), FINISHED, reason=EVICTED))
    row = await world.row(job_id)
    assert (row.status, row.outcome, row.reason.code) == (JobStatus.ENDING, JobStatus.QUEUED, ReasonCode.REQUEUED)
    assert all(card.held for card in await world.cards(job_id))
    await world.operate()
    waiting = (await world.view(job_id)).reservation
    assert (waiting.status, waiting.range_end, waiting.finished_at) == (JobStatus.QUEUED, None, None)
    assert (await world.view(job_id)).allocations == ()
    await world.plan()
    await world.operate()
    again = await world.row(job_id)
    assert (again.status, again.attempt) == (JobStatus.STARTING, 2)
    assert await node_of_first(world, job_id) != first
    assert (await world.row(behind)).status is JobStatus.QUEUED
    await world.see(world.cluster.show(pod(job_id, attempt=2), RUNNING, started_at=world.clock.now()))
    assert (await world.row(job_id)).status is JobStatus.RUNNING
    kinds = await world.kinds(job_id)
    assert kinds == ["submitted", "allocated", "start_failed", "requeued", "allocated", "started"]


async def test_a_job_that_waits_again_is_told_why_beside_what_it_waits_for(world: World) -> None:
    job_id = await world.started(gpus=2)
    await world.see(world.cluster.show(pod(job_id), FINISHED, reason=EVICTED))
    await world.operate()
    # The other node is taken before it comes to it.
    await world.sql("UPDATE nodes SET schedulable = false")
    await world.plan()
    view = await world.view(job_id)
    assert view.allocations == ()
    reason = view.reservation.reason
    assert reason.code is ReasonCode.NODE_UNAVAILABLE
    assert "Attempt 1 of 3 did not start: The node is being drained." in reason.detail


async def test_who_runs_after_all_when_it_was_taken_back_does_not_wait_again(world: World) -> None:
    world.cluster.obedient = False
    job_id = await world.started()
    await world.see(world.cluster.show(pod(job_id), PodPhase.PENDING, reason=EVICTED))
    await world.see(world.cluster.show(pod(job_id), RUNNING, started_at=world.clock.now()))
    await world.see(world.cluster.show(pod(job_id), GONE))
    row = await world.row(job_id)
    assert (row.status, row.reason.code, row.attempt) == (JobStatus.FAILED, ReasonCode.START_TIMEOUT, 1)


async def test_a_gang_goes_elsewhere_as_a_whole_and_names_the_pod(world: World) -> None:
    job_id = await world.started(nodes=2)
    await world.see(world.cluster.show(pod(job_id, 0), RUNNING, started_at=world.clock.now()))
    await world.see(world.cluster.show(pod(job_id, 1), FINISHED, reason=EVICTED))
    assert f"Pod {pod(job_id, 1)}: The node is being drained." in (await world.row(job_id)).reason.detail
    await world.operate()
    assert world.cluster.pods == {}
    await world.plan()
    # There are only two nodes: it may use those where it could not start.
    assert (await world.row(job_id)).attempt == 2


async def test_a_cancel_wins_over_going_back_to_the_line(world: World) -> None:
    job_id = await world.started()
    await world.see(world.cluster.show(pod(job_id), FINISHED, reason=EVICTED))
    await cancelled(world, job_id)
    await world.operate()
    row = await world.row(job_id)
    assert (row.status, row.reason.code) == (JobStatus.CANCELLED, ReasonCode.CANCELLED_BY_USER)
    assert not any(card.held for card in await world.cards(job_id))


@pytest.mark.parametrize("reason", [EVICTED, DELETED, Reason(ReasonCode.NODE_LOST, "The node does not answer.")])
@pytest.mark.parametrize("phase", [RUNNING, FINISHED, GONE])
async def test_a_running_job_whose_pod_is_taken_away_fails_with_the_cause(
    world: World, reason: Reason, phase: PodPhase
) -> None:
    job_id = await world.ran()
    await world.see(world.cluster.show(pod(job_id), phase, started_at=world.clock.now(), reason=reason))
    await world.operate()
    row = await world.row(job_id)
    assert (row.status, row.reason, row.attempt) == (JobStatus.FAILED, reason, 1)


async def test_a_pod_taken_away_before_it_ran_goes_elsewhere_but_not_one_that_somebody_deleted(world: World) -> None:
    drained, deleted = await world.started(), await world.started()
    await world.see(world.cluster.show(pod(drained), PodPhase.PENDING, reason=EVICTED))
    await world.see(world.cluster.show(pod(deleted), PodPhase.PENDING, reason=DELETED))
    assert (await world.row(drained)).outcome is JobStatus.QUEUED
    row = await world.row(deleted)
    assert (row.outcome, row.reason) == (JobStatus.FAILED, DELETED)


async def test_the_end_that_was_asked_for_stays_what_it_was(world: World) -> None:
    world.cluster.obedient = False
    job_id = await world.ran()
    await cancelled(world, job_id)
    await world.operate()
    before = await world.row(job_id)
    await world.see(world.cluster.show(pod(job_id), RUNNING, started_at=world.clock.now(), reason=DELETED))
    assert await world.row(job_id) == before
    await world.see(world.cluster.show(pod(job_id), FINISHED, exit_code=143, reason=DELETED))
    after = await world.row(job_id)
    assert (after.outcome, after.reason, after.exit_code) == (JobStatus.CANCELLED, before.reason, 143)


async def test_a_pod_that_has_finished_while_ending_is_let_go_of_at_once(world: World) -> None:
    world.cluster.obedient = False
    job_id = await world.ran(nodes=2)
    await cancelled(world, job_id)
    await world.operate()
    await world.see(world.cluster.show(pod(job_id, 0), FINISHED, exit_code=143))
    assert await world.depth("pod_operations") == 0
    await world.see(world.cluster.show(pod(job_id, 1), FINISHED, exit_code=143))
    await world.operate()
    assert (await world.row(job_id)).status is JobStatus.CANCELLED
    assert not any(card.held for card in await world.cards(job_id))


async def test_the_lost_pod_of_a_gang_is_named(world: World) -> None:
    job_id = await world.ran(nodes=2)
    await world.see(world.cluster.show(pod(job_id, 1), GONE))
    row = await world.row(job_id)
    assert (row.outcome, row.reason.code) == (JobStatus.FAILED, ReasonCode.POD_LOST)
    assert str(pod(job_id, 1)) in row.reason.detail


async def test_a_pod_that_is_gone_may_say_how_it_ended(world: World) -> None:
    job_id = await world.started()
    begun = world.clock.now()
    await world.see(world.cluster.show(pod(job_id), GONE, started_at=begun, exit_code=0))
    row = await world.row(job_id)
    assert (row.status, row.exit_code, row.started_at) == (JobStatus.SUCCEEDED, 0, begun)


class Sent:
    """Spans by name, instead of a collector."""

    def __init__(self) -> None:
        self.spans: list[str] = []

    def begin(self) -> str:
        """See `ports.traces`."""
        return TRACE

    def add_root(self, span: Span) -> None:
        """See `ports.traces`."""
        self.spans.append(span.name)

    def add(self, span: Span) -> None:
        """See `ports.traces`."""
        self.spans.append(span.name)

    async def close(self) -> None:
        """Nothing is open."""


def refuse_at_commit(status: str) -> tuple[str, str]:
    """Let the database roll back all that give a job this status."""
    return (
        """CREATE FUNCTION refuse_changes() RETURNS trigger LANGUAGE plpgsql AS $$
           BEGIN RAISE EXCEPTION 'no change' USING ERRCODE = '57P01'; END $$""",
        f"""CREATE CONSTRAINT TRIGGER refuse_changes AFTER UPDATE ON reservations DEFERRABLE INITIALLY DEFERRED
           FOR EACH ROW WHEN (NEW.status = '{status}') EXECUTE FUNCTION refuse_changes()""",
    )


@pytest.mark.parametrize("nodes", [1, 2])
async def test_a_start_that_is_rolled_back_has_no_span(world: World, nodes: int) -> None:
    job_id = await world.started(nodes=nodes)
    await world.sql("UPDATE reservations SET trace = :trace WHERE id = :id", trace=TRACE, id=job_id)
    seen = [world.cluster.show(pod(job_id, rank), RUNNING, started_at=world.clock.now()) for rank in range(nodes)]
    traces = Sent()
    for statement in refuse_at_commit("running"):
        await world.sql(statement)
    try:
        with pytest.raises(DatabaseUnavailableError):
            await observe(world.uow, world.cluster, seen, world.clock, MAX_STARTS, traces=traces)
    finally:
        await world.sql("DROP FUNCTION refuse_changes CASCADE")
    assert ((await world.row(job_id)).status, traces.spans) == (JobStatus.STARTING, [])
    await observe(world.uow, world.cluster, seen, world.clock, MAX_STARTS, traces=traces)
    assert ((await world.row(job_id)).status, traces.spans) == (JobStatus.RUNNING, ["start pods"])

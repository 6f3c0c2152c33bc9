"""Every branch of the expiry: ends, warnings, starts that never come about, ends that do not come to an end."""

from datetime import timedelta

import pytest

from reservation_core.domain.jobs.repeated_asking import RepeatedEndRequests
from reservation_core.domain.model import PodPhase, Reason
from reservation_core.domain.statuses import JobStatus, ReasonCode
from reservation_core.usecases.running import expire_jobs as expiry
from reservation_core.usecases.running.expire_jobs import ExpiryReport, ExpiryRules, expire
from tests.integration.reservation_core.usecases.world import ALLOWANCE, MAX_STARTS, World, pod

RULES = ExpiryRules(
    warn_before_s=(1800, 900, 300),
    start_allowance=ALLOWANCE,
    max_starts=MAX_STARTS,
    ending_patience=timedelta(minutes=1),
)
NOTHING = ExpiryReport(0, 0, 0, 0, 0)


async def once(world: World) -> ExpiryReport:
    return await expire(world.uow, world.cluster, world.clock, RULES)


async def test_with_nothing_due_nothing_is_done(world: World) -> None:
    await world.ran()
    await world.submitted()
    world.clock.go_on(timedelta(minutes=29))
    assert await once(world) == NOTHING


async def test_a_job_past_its_end_is_ended_once_and_becomes_expired(world: World) -> None:
    job_id = await world.ran(duration=60)
    world.clock.go_on(timedelta(seconds=59))
    assert (await once(world)).ended == 0
    world.clock.go_on(timedelta(seconds=1))
    assert (await once(world)).ended == 1
    assert (await once(world)).ended == 0
    assert (await world.row(job_id)).status is JobStatus.ENDING
    await world.operate()
    row = await world.row(job_id)
    assert (row.status, row.reason.code.value) == (JobStatus.EXPIRED, "duration_reached")
    assert world.cluster.deleted == [str(pod(job_id))]
    assert not any(card.held for card in await world.cards(job_id))


@pytest.mark.parametrize(
    ("exit_code", "after_s", "nodes", "expected"),
    [
        (0, 40, 1, JobStatus.SUCCEEDED),
        (3, 40, 1, JobStatus.FAILED),
        (0, 40, 2, JobStatus.SUCCEEDED),
        (0, 60, 1, JobStatus.EXPIRED),
    ],
)
async def test_what_was_over_before_its_end_and_was_not_seen_says_how_it_ended(
    world: World, exit_code: int, after_s: int, nodes: int, expected: JobStatus
) -> None:
    """Processors that were away come back when the job's end is past, and end it before they have heard of its pods."""
    job_id = await world.ran(duration=60, nodes=nodes)
    began = (await world.row(job_id)).started_at
    assert began is not None
    for rank in range(nodes):
        world.cluster.show(
            pod(job_id, rank),
            PodPhase.FINISHED,
            exit_code=exit_code,
            started_at=began,
            finished_at=began + timedelta(seconds=after_s),
        )
    world.clock.go_on(timedelta(seconds=70))
    assert (await once(world)).ended == 1
    await world.operate()
    row = await world.row(job_id)
    assert (row.status, row.exit_code) == (expected, exit_code)
    assert not any(card.held for card in await world.cards(job_id))


async def test_each_warning_is_given_once_in_its_time(world: World) -> None:
    job_id = await world.ran(duration=3600)
    given = []
    for minute in range(60):
        report = await once(world)
        if report.warned:
            given.append(60 - minute)
        assert (await once(world)).warned == 0
        world.clock.go_on(timedelta(minutes=1))
    assert given == [30, 15, 5]
    warnings = [event.data for event in await world.events(job_id) if event.kind == "end_warning"]
    assert [warning["seconds_left"] for warning in warnings] == [1800, 900, 300]


async def test_only_warnings_shorter_than_the_job_are_given(world: World) -> None:
    job_id = await world.ran(duration=900)
    given = []
    for minute in range(15):
        if (await once(world)).warned:
            given.append(15 - minute)
        world.clock.go_on(timedelta(minutes=1))
    assert given == [5]
    assert (await world.kinds(job_id)).count("end_warning") == 1


async def test_a_run_that_was_missed_gives_the_nearest_warning_only(world: World) -> None:
    job_id = await world.ran(duration=3600)
    world.clock.go_on(timedelta(minutes=58))
    assert (await once(world)).warned == 1
    assert (await once(world)).warned == 0
    assert (await world.row(job_id)).warned_s == 300


async def test_a_job_stuck_starting_is_tried_again_and_then_fails_with_its_reason(world: World) -> None:
    job_id = await world.started()
    for attempt in (1, 2, 3):
        world.clock.go_on(ALLOWANCE)
        assert (await once(world)).timed_out == 0
        world.clock.go_on(timedelta(seconds=1))
        assert (await once(world)).timed_out == 1
        await world.operate()
        if attempt < RULES.max_starts:
            row = await world.row(job_id)
            assert (row.status, row.reason.code.value, row.attempt) == (JobStatus.QUEUED, "requeued", attempt)
            assert not any(card.held for card in await world.cards(job_id))
            await world.plan()
            await world.operate()
    row = await world.row(job_id)
    assert (row.status, row.reason.code.value) == (JobStatus.FAILED, "start_timeout")
    assert not any(card.held for card in await world.cards(job_id))


async def test_who_timed_out_starting_says_what_the_cluster_said(world: World) -> None:
    job_id = await world.started()
    cause = Reason(ReasonCode.IMAGE_PULL_FAILED, "The image can't be pulled.")
    for _ in range(RULES.max_starts):
        attempt = (await world.row(job_id)).attempt
        await world.see(world.cluster.show(pod(job_id, attempt=attempt), PodPhase.PENDING, reason=cause))
        world.clock.go_on(ALLOWANCE + timedelta(seconds=1))
        await once(world)
        await world.operate()
        await world.plan()
        await world.operate()
    row = await world.row(job_id)
    assert (row.status, row.reason.code, row.attempt) == (JobStatus.FAILED, ReasonCode.IMAGE_PULL_FAILED, 3)
    assert row.reason.detail == "The image can't be pulled. It was tried 3 times."


async def test_no_start_is_given_up_while_the_cluster_is_silent(world: World) -> None:
    job_id = await world.started()
    world.clock.go_on(10 * ALLOWANCE)
    world.cluster.down = True
    report = await once(world)
    assert (report.timed_out, report.unknown) == (0, 1)
    assert (await world.row(job_id)).status is JobStatus.STARTING
    world.cluster.down = False
    assert (await once(world)).timed_out == 1


async def test_a_pod_that_could_be_made_only_late_has_its_own_time(world: World) -> None:
    job_id = await world.started()
    world.clock.go_on(10 * ALLOWANCE)  # the cluster was silent, and has just taken the pod
    world.cluster.show(pod(job_id), PodPhase.PENDING, created_at=world.clock.now())
    assert (await once(world)).timed_out == 0
    world.clock.go_on(ALLOWANCE)
    assert (await once(world)).timed_out == 1


async def test_no_start_is_given_up_while_somebody_makes_its_pods(world: World) -> None:
    job_id = await world.submitted()
    await world.plan()
    world.clock.go_on(10 * ALLOWANCE)
    async with world.uow.hold_pods([job_id]):
        assert (await once(world)).timed_out == 0
    assert (await once(world)).timed_out == 1


async def test_no_start_is_given_up_whose_pods_run_though_nobody_has_seen_it(world: World) -> None:
    job_id = await world.started(nodes=2)
    world.clock.go_on(10 * ALLOWANCE)
    first = world.cluster.show(pod(job_id, 0), PodPhase.RUNNING, started_at=world.clock.now())
    second = world.cluster.show(pod(job_id, 1), PodPhase.FINISHED, started_at=world.clock.now(), exit_code=0)
    assert await once(world) == NOTHING
    await world.see(first, second)
    assert (await world.row(job_id)).status is JobStatus.RUNNING


async def test_who_looks_every_second_does_not_ask_every_second(world: World) -> None:
    world.cluster.obedient = False
    asked = RepeatedEndRequests(RULES.ending_patience)

    async def look() -> int:
        report = await expire(world.uow, world.cluster, world.clock, RULES, asked)
        await world.operate()
        return report.resent

    await world.ran(duration=60)
    world.clock.go_on(timedelta(minutes=1))
    await look()
    world.clock.go_on(timedelta(seconds=61))
    assert [await look() for _ in range(3)] == [1, 0, 0]
    world.clock.go_on(timedelta(minutes=1))
    assert [await look() for _ in range(3)] == [1, 0, 0]
    world.clock.go_on(timedelta(minutes=1))
    assert await look() == 0


async def test_an_end_that_got_stuck_is_asked_for_again(world: World) -> None:
    world.cluster.obedient = False
    job_id = await world.ran(duration=60)
    world.clock.go_on(timedelta(minutes=1))
    await once(world)
    await world.operate()
    world.clock.go_on(timedelta(minutes=1))
    assert (await once(world)).resent == 0
    world.clock.go_on(timedelta(seconds=1))
    assert (await once(world)).resent == 1
    await world.operate()
    assert world.cluster.deleted == [str(pod(job_id))] * 2
    assert (await world.row(job_id)).status is JobStatus.ENDING
    # The pod's card stays held: it is not known to be gone.
    assert all(card.held for card in await world.cards(job_id))
    await world.see(world.cluster.show(pod(job_id), PodPhase.GONE))
    assert (await world.row(job_id)).status is JobStatus.EXPIRED


async def test_what_is_asked_for_already_is_not_asked_for_again(world: World) -> None:
    """Else a cluster that is down for an hour would leave a message for every run and every stuck job."""
    await world.ran(duration=60)
    world.clock.go_on(timedelta(hours=1))
    await once(world)
    world.clock.go_on(timedelta(hours=1))
    for _ in range(5):
        await once(world)
    assert await world.depth("pod_operations") == 1


async def test_more_than_one_batch_is_ended_in_one_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "_BATCH", 2)
    jobs = [await world.ran(duration=60) for _ in range(4)]
    world.clock.go_on(timedelta(minutes=1))
    assert (await once(world)).ended == 4
    assert {(await world.row(job_id)).status for job_id in jobs} == {JobStatus.ENDING}


async def test_ends_that_are_stuck_keep_no_start_from_timing_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "_BATCH", 2)
    world.cluster.obedient = False
    for _ in range(2):
        await world.ran(duration=60)
    world.clock.go_on(timedelta(minutes=1))
    await once(world)
    await world.operate()
    starting = await world.started()
    world.clock.go_on(timedelta(minutes=3))
    await once(world)
    assert (await world.row(starting)).status is JobStatus.ENDING

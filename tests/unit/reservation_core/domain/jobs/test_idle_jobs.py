"""Warnings of idle jobs, and what ends them."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from reservation_core.domain.changes import (
    CancelRequested,
    DeletePods,
    DrainBefore,
    Effect,
    EndReached,
    ExtendRequested,
    GpusIdle,
    GpusNeeded,
    IdleOver,
    IdleReleaseDue,
    KeepRequested,
    MoveToEnd,
    PodsFinished,
    PodsGone,
    PodsLost,
    Record,
    SignalPods,
)
from reservation_core.domain.errors import NotIdleError
from reservation_core.domain.gpu_use.idle_rules import IdleWarning
from reservation_core.domain.jobs.lifecycle import transition
from reservation_core.domain.model import PodWorkload, Preemption, Reason, Reservation
from reservation_core.domain.request_terms import REQUEUES, EndSignal, SignalName
from reservation_core.domain.statuses import JobStatus, ReasonCode
from tests.unit.reservation_core.domain.jobs.life.lives import HOUR, T0, queued, running

MINUTE = timedelta(minutes=1)
WARNING = IdleWarning(T0 - HOUR, T0, T0 + 30 * MINUTE)


def warned(warning: IdleWarning = WARNING) -> Reservation:
    return transition(running(), GpusIdle(warning), T0)[0]


def test_a_running_job_is_warned_once() -> None:
    assert warned().idle == WARNING
    assert transition(warned(), GpusIdle(WARNING), T0) == (warned(), ())
    assert transition(queued(), GpusIdle(WARNING), T0) == (queued(), ())


@pytest.mark.parametrize(
    ("release_at", "words"),
    [
        (WARNING.release_at, "They go to others at 2030-01-01T00:30:00Z if they still are."),
        (None, "Others could use them."),
    ],
)
def test_the_audit_log_says_since_when_gpus_are_idle_and_what_follows(release_at: datetime | None, words: str) -> None:
    after, [record] = transition(running(), GpusIdle(WARNING._replace(release_at=release_at)), T0)
    assert after.reason.code is ReasonCode.RUNNING
    assert isinstance(record, Record)
    assert record.reason == Reason(ReasonCode.IDLE, f"Its GPUs have been idle since 2029-12-31T23:00:00Z. {words}")


def test_the_audit_log_says_why_a_warning_is_over() -> None:
    _, [record] = transition(warned(), IdleOver(), T0)
    assert isinstance(record, Record)
    assert record.reason is not None
    assert "used again" in record.reason.detail


def test_it_is_not_ended_before_the_time_that_its_owner_was_told() -> None:
    early = T0 + 29 * MINUTE
    assert transition(warned(), IdleReleaseDue(), early) == (warned(), ())
    late, effects = transition(warned(), IdleReleaseDue(), T0 + 30 * MINUTE)
    assert (late.status, late.outcome, late.reason.code) == (JobStatus.ENDING, JobStatus.EXPIRED, ReasonCode.IDLE)
    assert "Its GPUs were idle for 1h30m" in late.reason.detail
    assert isinstance(effects[0], DeletePods)
    # Its command takes SIGTERM and ends well, or dies of it: it was ended all the same.
    ended, _ = transition(late, PodsFinished(T0 + 31 * MINUTE, 0), T0 + 31 * MINUTE)
    assert (ended.outcome, ended.reason.code) == (JobStatus.EXPIRED, ReasonCode.IDLE)


def back(job: Reservation, at: datetime = T0 + 31 * MINUTE) -> tuple[Reservation, tuple[Effect, ...]]:
    """After its pods have ended and are gone."""
    ended, _ = transition(job, PodsFinished(at, 0), at)
    return transition(ended, PodsGone(), at)


def test_it_goes_to_the_end_of_the_queue() -> None:
    due = T0 + 30 * MINUTE
    job = replace(warned(), workload=PodWorkload(("train",)))
    late, effects = transition(job, IdleReleaseDue(requeue=True), due)
    assert (late.status, late.outcome, late.reason.code) == (JobStatus.ENDING, JobStatus.QUEUED, ReasonCode.IDLE)
    assert isinstance(effects[0], DeletePods)
    after, effects = back(late)
    assert (after.status, after.preemption.times, after.preemption.asked_at, after.idle) == (
        JobStatus.QUEUED,
        1,
        None,
        None,
    )
    assert "left its GPUs idle. It waits at the end of the queue." in after.reason.detail
    assert MoveToEnd() in effects
    preemptible = replace(job, preemption=Preemption(preemptible=True))
    assert MoveToEnd() not in back(transition(preemptible, GpusNeeded(), due)[0])[1]


def asked(lead: timedelta = 5 * MINUTE) -> Reservation:
    """An idle job with a signal, whose warning is over since now."""
    terms = Preemption(end_signal=EndSignal(SignalName.USR1, lead))
    job = replace(warned(), workload=PodWorkload(("train",)), preemption=terms)
    return transition(job, IdleReleaseDue(requeue=True), T0 + 30 * MINUTE)[0]


def test_its_signal_has_its_lead_before_it_goes_to_the_end_of_the_queue() -> None:
    due = T0 + 30 * MINUTE
    job = asked()
    assert (job.status, job.reason.code, job.idle, job.idle_from) == (JobStatus.RUNNING, ReasonCode.IDLE, None, due)
    assert (job.preemption.asked_at, job.preemption.signalled_at) == (due, due)
    assert "It got SIGUSR1, and ends by 2030-01-01T00:35:00Z." in job.reason.detail
    early = due + 5 * MINUTE - timedelta(seconds=1)
    for event in (GpusNeeded(), GpusIdle(WARNING), IdleReleaseDue(requeue=True), IdleOver()):
        assert transition(job, event, early) == (job, ())
    late, effects = transition(job, GpusNeeded(), due + 5 * MINUTE)
    assert (late.status, late.outcome, late.reason.code) == (JobStatus.ENDING, JobStatus.QUEUED, ReasonCode.IDLE)
    assert isinstance(effects[0], DeletePods)
    assert not any(isinstance(effect, SignalPods) for effect in effects)
    after, effects = back(late, due + 6 * MINUTE)
    assert (after.status, after.preemption.times, after.preemption.signalled_at) == (JobStatus.QUEUED, 1, None)
    assert MoveToEnd() in effects


def test_the_signal_goes_out_once_and_ends_at_once_without_a_lead() -> None:
    terms = Preemption(end_signal=EndSignal(SignalName.USR1, 5 * MINUTE), signalled_at=T0 + 29 * MINUTE)
    job = replace(warned(), workload=PodWorkload(("train",)), preemption=terms)
    again, effects = transition(job, IdleReleaseDue(requeue=True), T0 + 30 * MINUTE)
    assert again.preemption.signalled_at == T0 + 29 * MINUTE
    assert [type(effect) for effect in effects] == [Record, Record]
    at_once = asked(timedelta(0))
    assert (at_once.status, at_once.outcome) == (JobStatus.ENDING, JobStatus.QUEUED)


def test_what_ends_in_its_lead_goes_to_the_end_of_the_queue() -> None:
    job, at = asked(), T0 + 31 * MINUTE
    checkpoint = replace(job, preemption=replace(job.preemption, preemptible=True))
    ends = ((job, PodsFinished(at, 3)), (job, PodsFinished(at, 143)), (checkpoint, PodsFinished(at, 0)))
    for row, event in (*ends, (job, PodsLost("gone"))):
        ended, _ = transition(row, event, at)
        assert (ended.status, ended.outcome, ended.reason.code) == (
            JobStatus.ENDING,
            JobStatus.QUEUED,
            ReasonCode.IDLE,
        )
        assert MoveToEnd() in transition(ended, PodsGone(), at)[1]


def test_work_that_is_done_in_its_lead_is_done() -> None:
    """Its owner never chose to give GPUs back, so its exit code 0 is no checkpoint."""
    job, due = asked(), T0 + 30 * MINUTE
    early, late = due + 4 * MINUTE, due + 6 * MINUTE
    # It may be seen while it runs, or once its pods are being ended.
    ending, _ = transition(job, GpusNeeded(), due + 5 * MINUTE)
    for row in (job, ending):
        ended, _ = transition(row, PodsFinished(early, 0), late)
        after, effects = transition(ended, PodsGone(), late)
        assert (after.status, after.exit_code) == (JobStatus.SUCCEEDED, 0)
        assert MoveToEnd() not in effects
    # SIGTERM ended it, or whatever took its pods away: that is no end of its own.
    lost, _ = transition(job, PodsLost("gone"), early)
    for row, at in ((ending, late), (ending, due + 5 * MINUTE), (lost, early)):
        ended, _ = transition(row, PodsFinished(at, 0), late)
        assert transition(ended, PodsGone(), late)[0].status is JobStatus.QUEUED


@pytest.mark.parametrize("preemptible", [False, True])
@pytest.mark.parametrize("begins_after", [timedelta(0), 3 * MINUTE, 20 * MINUTE])
def test_maintenance_in_its_lead_leaves_why_it_ends_and_where_it_waits(
    preemptible: bool, begins_after: timedelta
) -> None:
    first, at = asked(), T0 + 31 * MINUTE
    job = replace(first, preemption=replace(first.preemption, preemptible=preemptible))
    window = DrainBefore(at + begins_after, at + HOUR, timedelta(seconds=10), "Maintenance of n1.", "root")
    job, _ = transition(job, window, at)
    for event in (EndReached(), GpusNeeded()):
        for minutes in range(31, 37):
            job, _ = transition(job, event, T0 + minutes * MINUTE)
    assert (job.status, job.outcome, job.reason.code) == (JobStatus.ENDING, JobStatus.QUEUED, ReasonCode.IDLE)
    assert "Its GPUs were idle" in job.reason.detail
    assert "It goes to the end of the queue" in job.reason.detail
    after, effects = transition(job, PodsGone(), T0 + 40 * MINUTE)
    assert (after.status, MoveToEnd() in effects) == (JobStatus.QUEUED, True)


def test_a_session_and_a_job_that_hangs_each_time_are_ended() -> None:
    job = replace(warned(), workload=PodWorkload(("train",)))
    session = replace(job, workload=PodWorkload())
    often = replace(job, preemption=replace(job.preemption, times=REQUEUES))
    for row in (session, often):
        late, _ = transition(row, IdleReleaseDue(requeue=True), T0 + 30 * MINUTE)
        assert (late.outcome, late.reason.code) == (JobStatus.EXPIRED, ReasonCode.IDLE)


def test_without_a_warning_or_with_one_that_only_warns_it_is_not_ended() -> None:
    for row in (running(), warned(WARNING._replace(release_at=None))):
        assert transition(row, IdleReleaseDue(), T0 + HOUR) == (row, ())


def test_a_warning_is_taken_back_by_use_by_its_owner_and_by_an_extension() -> None:
    for event in (IdleOver(), KeepRequested("alice"), ExtendRequested("alice", HOUR, 9 * HOUR)):
        after, _ = transition(warned(), event, T0 + MINUTE)
        assert (after.idle, after.idle_from, after.status) == (None, T0 + MINUTE, JobStatus.RUNNING)
    by_itself, _ = transition(warned(), ExtendRequested("alice", HOUR, 9 * HOUR, by_itself=True), T0 + MINUTE)
    assert by_itself.idle == WARNING


def test_without_a_warning_there_is_nothing_to_keep() -> None:
    ending, _ = transition(warned(), CancelRequested("alice"), T0)
    for row in (queued(), running(), ending):
        with pytest.raises(NotIdleError):
            transition(row, KeepRequested("alice"), T0)


def test_a_job_that_was_asked_to_end_says_so_instead_of_being_kept() -> None:
    with pytest.raises(NotIdleError) as refused:
        transition(asked(), KeepRequested("alice"), T0 + 31 * MINUTE)
    said = str(refused.value)
    assert "was asked to end at 2030-01-01T00:30:00Z, so it can't be kept any more." in said
    assert "Its GPUs were idle for 1h30m" in said
    assert "ends by 2030-01-01T00:35:00Z. It goes to the end of the queue" in said

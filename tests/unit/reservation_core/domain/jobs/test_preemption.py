"""Jobs that give their GPUs back: what each event does, in any order."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from reservation_core.domain.changes import (
    CancelRequested,
    DeletePods,
    DrainBefore,
    EndReached,
    Event,
    ExtendRequested,
    GpusNeeded,
    NodeFenced,
    PodsFinished,
    PodsGone,
    PodsLost,
    PodsRunning,
    ReleaseGpus,
    SetRangeEnd,
    SignalDue,
    SignalPods,
)
from reservation_core.domain.jobs.lifecycle import transition
from reservation_core.domain.jobs.starts import taken_back
from reservation_core.domain.model import ASKED_WITHIN, PodWorkload, Preemption, Reason, Reservation
from reservation_core.domain.request_terms import EndSignal, SignalName, read_end_signal
from reservation_core.domain.statuses import JobStatus, ReasonCode, ReservationKind
from tests.clocks import START

MINUTE = timedelta(minutes=1)
GRACE = timedelta(seconds=10)
SIGNAL = EndSignal(SignalName.USR1, 5 * MINUTE)


def starting(terms: Preemption, **more: Any) -> Reservation:
    job = Reservation(
        id="job-a",
        seq=1,
        kind=ReservationKind.JOB,
        user_id=1,
        user="ann",
        name=None,
        status=JobStatus.STARTING,
        reason=Reason(ReasonCode.ALLOCATED, ""),
        gpus=1,
        gpu_type=None,
        nodes=1,
        duration=120 * MINUTE,
        priority=0,
        workload=PodWorkload(("true",)),
        created_at=START,
        version=1,
        attempt=1,
        range_end=START + 200 * MINUTE,
        preemption=terms,
    )
    return replace(job, **more)


def running(terms: Preemption, **more: Any) -> Reservation:
    return transition(starting(terms, **more), PodsRunning(START, GRACE), START)[0]


def asked(job: Reservation, at: datetime) -> Reservation:
    return transition(job, GpusNeeded(), at)[0]


def test_its_range_is_what_it_keeps_for_sure() -> None:
    terms = Preemption(True, 30 * MINUTE, SIGNAL)
    job, effects = transition(starting(terms), PodsRunning(START, GRACE), START)
    assert job.ends_at == START + 120 * MINUTE
    assert job.range_end == START + 35 * MINUTE + ASKED_WITHIN + GRACE
    assert SetRangeEnd(job.range_end) in effects
    short = running(Preemption(True, 120 * MINUTE, SIGNAL))
    assert short.range_end == START + 120 * MINUTE + GRACE


def test_it_is_not_asked_before_its_least_time_and_never_without_terms() -> None:
    job = running(Preemption(True, 30 * MINUTE))
    assert transition(job, GpusNeeded(), START + 30 * MINUTE - timedelta(seconds=1)) == (job, ())
    ended, effects = transition(job, GpusNeeded(), START + 30 * MINUTE)
    assert (ended.status, ended.outcome, DeletePods() in effects) == (JobStatus.ENDING, JobStatus.QUEUED, True)
    other = running(Preemption(end_signal=SIGNAL))
    assert transition(other, GpusNeeded(), START + 60 * MINUTE) == (other, ())
    first = starting(Preemption(True))
    assert transition(first, GpusNeeded(), START) == (first, ())


def test_it_has_the_lead_of_its_signal_until_its_pods_end() -> None:
    job = running(Preemption(True, end_signal=SIGNAL))
    told, effects = transition(job, GpusNeeded(), START + MINUTE)
    assert SignalPods() in effects
    assert DeletePods() not in effects
    assert transition(told, GpusNeeded(), START + 6 * MINUTE - timedelta(seconds=1)) == (told, ())
    ended, effects = transition(told, GpusNeeded(), START + 6 * MINUTE)
    assert (ended.status, DeletePods() in effects, SignalPods() in effects) == (JobStatus.ENDING, True, False)


def test_a_signal_without_lead_comes_with_the_end() -> None:
    job = running(Preemption(True, end_signal=EndSignal(SignalName.USR1, timedelta(0))))
    _, effects = transition(job, GpusNeeded(), START + MINUTE)
    assert effects[:2] == (SignalPods(), DeletePods())


@pytest.mark.parametrize("code", [0, 1, 143])
def test_after_it_was_asked_it_waits_again_whatever_its_exit_code(code: int) -> None:
    end = PodsFinished(START + 2 * MINUTE + timedelta(microseconds=1), code, START)
    for job in (
        asked(running(Preemption(True, end_signal=SIGNAL)), START + MINUTE),
        asked(running(Preemption(True)), START + MINUTE),
    ):
        ending, _ = transition(job, end, START + 3 * MINUTE)
        assert (ending.status, ending.outcome, ending.exit_code) == (JobStatus.ENDING, JobStatus.QUEUED, code)
        again, effects = transition(ending, PodsGone(), START + 3 * MINUTE)
        assert again.status is JobStatus.QUEUED
        assert again.reason.code is ReasonCode.PREEMPTED
        assert (again.preemption.times, again.preemption.asked_at, again.preemption.signalled_at) == (1, None, None)
        assert (again.started_at, again.ends_at, again.exit_code, again.retried) == (None, None, None, 0)
        assert ReleaseGpus(START) in effects


@pytest.mark.parametrize(("code", "status"), [(0, JobStatus.SUCCEEDED), (3, JobStatus.FAILED)])
def test_what_had_ended_before_it_was_asked_has_ended(code: int, status: JobStatus) -> None:
    end = PodsFinished(START + MINUTE - timedelta(microseconds=1), code, START)
    for terms in (Preemption(True), Preemption(True, end_signal=SIGNAL)):
        job, _ = transition(asked(running(terms), START + MINUTE), end, START + 2 * MINUTE)
        job, _ = transition(job, PodsGone(), START + 2 * MINUTE)
        assert job.status is status


def test_a_whole_second_in_which_it_was_asked_counts_as_after() -> None:
    job = asked(running(Preemption(True)), START + timedelta(milliseconds=500))
    ending, _ = transition(job, PodsFinished(START, 0, START), START + MINUTE)
    assert ending.outcome is JobStatus.QUEUED


def test_it_can_be_cancelled_and_extended_while_it_ends() -> None:
    job = asked(running(Preemption(True)), START + MINUTE)
    gone, _ = transition(transition(job, CancelRequested("ann"), START)[0], PodsGone(), START + 2 * MINUTE)
    assert gone.status is JobStatus.CANCELLED
    longer, _ = transition(job, ExtendRequested("ann", MINUTE, 999 * MINUTE), START)
    assert longer.duration == 121 * MINUTE
    assert transition(longer, PodsGone(), START + 2 * MINUTE)[0].status is JobStatus.QUEUED


def test_an_extension_leaves_its_range_and_puts_its_signal_off() -> None:
    job = running(Preemption(True, end_signal=SIGNAL))
    job, _ = transition(job, SignalDue(), START + 115 * MINUTE)
    longer, _ = transition(job, ExtendRequested("ann", MINUTE, 999 * MINUTE), START + 116 * MINUTE)
    assert (longer.range_end, longer.ends_at) == (job.range_end, START + 121 * MINUTE)
    assert longer.preemption.signalled_at is None


def test_any_job_is_signalled_once_before_its_end() -> None:
    job = running(Preemption(end_signal=SIGNAL))
    assert job.ends_at == START + 120 * MINUTE
    assert transition(job, SignalDue(), START + 115 * MINUTE - timedelta(seconds=1)) == (job, ())
    told, effects = transition(job, SignalDue(), START + 115 * MINUTE)
    assert (told.status, SignalPods() in effects) == (JobStatus.RUNNING, True)
    assert transition(told, SignalDue(), START + 116 * MINUTE) == (told, ())
    ended, _ = transition(told, EndReached(), START + 120 * MINUTE)
    assert ended.outcome is JobStatus.EXPIRED


@pytest.mark.parametrize(
    "event", [PodsLost("It is gone.", ReasonCode.EVICTED), NodeFenced("n1", "root", None, max_starts=3)], ids=repr
)
def test_a_job_that_loses_its_node_after_it_was_asked_waits_again(event: Event) -> None:
    job = asked(running(Preemption(True, end_signal=SIGNAL)), START + MINUTE)
    job, effects = transition(job, event, START + 2 * MINUTE)
    assert DeletePods() in effects
    assert (job.status, job.outcome, job.reason.code) == (JobStatus.ENDING, JobStatus.QUEUED, ReasonCode.PREEMPTED)


def test_maintenance_for_now_lets_it_wait_again() -> None:
    job = running(Preemption(True, 30 * MINUTE))
    window = DrainBefore(START + MINUTE, START + 200 * MINUTE, GRACE, "Maintenance of n1.", "root")
    job, effects = transition(job, window, START + MINUTE)
    assert (job.status, job.outcome, job.ends_at) == (JobStatus.ENDING, JobStatus.QUEUED, START + MINUTE)
    assert DeletePods() in effects
    assert SetRangeEnd(START + MINUTE) in effects
    job, _ = transition(job, PodsGone(), START + 2 * MINUTE)
    assert (job.status, job.preemption.times) == (JobStatus.QUEUED, 1)


def test_maintenance_within_its_least_time_lets_it_wait_again_as_it_begins() -> None:
    job = running(Preemption(True, 30 * MINUTE))
    window = DrainBefore(START + 20 * MINUTE, START + 200 * MINUTE, GRACE, "Maintenance of n1.", "root")
    job, _ = transition(job, window, START + MINUTE)
    assert (job.status, job.ends_at) == (JobStatus.RUNNING, START + 20 * MINUTE - GRACE)
    job, _ = transition(job, EndReached(), START + 20 * MINUTE - GRACE)
    assert (job.status, job.outcome, job.reason.code) == (JobStatus.ENDING, JobStatus.QUEUED, ReasonCode.PREEMPTED)


def test_at_its_own_end_it_has_ended() -> None:
    job, _ = transition(running(Preemption(True)), EndReached(), START + 120 * MINUTE)
    assert (job.outcome, job.reason.code) == (JobStatus.EXPIRED, ReasonCode.DURATION_REACHED)


def test_preemptions_are_no_failed_starts() -> None:
    job = starting(Preemption(True, times=5), attempt=6)
    assert taken_back(job, Reason(ReasonCode.UNSCHEDULABLE, "x"), 3).outcome is JobStatus.QUEUED


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("USR1@300", (SignalName.USR1, 300)),
        ("sigusr2@0", (SignalName.USR2, 0)),
        ("INT", (SignalName.INT, 60)),
        ("KILL@3", None),
        ("USR1@", None),
        ("USR1@-3", None),
        ("10@300", None),
        ("", None),
    ],
)
def test_signals_are_read_as_typed(text: str, read: tuple[SignalName, int] | None) -> None:
    assert read_end_signal(text) == read

"""Retries: after which ends, how often, and what ends them."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.changes import (
    Adopted,
    BookingOver,
    CancelRequested,
    DrainBefore,
    EndReached,
    HeldGpu,
    NodeFenced,
    PodsFinished,
    PodsGone,
    PodsLost,
    PodsRunning,
    Record,
    ReleaseGpus,
    StartFailed,
    WakePlanner,
)
from reservation_core.domain.jobs.lifecycle import transition
from reservation_core.domain.jobs.retries import CAUSES
from reservation_core.domain.model import Reason, Reservation
from reservation_core.domain.request_terms import Retries, RetryCause
from reservation_core.domain.statuses import FINAL_STATUSES, JobStatus, ReasonCode
from tests.unit.reservation_core.domain.jobs.test_cut_short import GRACE, HOUR, T0, job

ALL = frozenset(RetryCause)
STARTS = 3
LOST = NodeFenced("n1", "root", None, STARTS)
EVICTED = PodsFinished(T0, None, None, reason=Reason(ReasonCode.EVICTED, "The node is full."))
MAINTENANCE = DrainBefore(T0, T0 + HOUR, GRACE, "Maintenance of n1.", "root")


def running(causes: frozenset[RetryCause] = ALL, most: int = 2, **fields: object) -> Reservation:
    retries = Retries(most, causes)
    given: dict[str, object] = {
        "attempt": 1,
        "started_at": T0,
        "ends_at": T0 + HOUR,
        "range_end": T0 + HOUR,
        "retries": retries,
    }
    return replace(job(JobStatus.RUNNING), **{**given, **fields})  # type: ignore[arg-type]


def ended(row: Reservation, event: object) -> Reservation:
    ending, _ = transition(row, event, T0)  # type: ignore[arg-type]
    return transition(ending, PodsGone(), T0)[0]


@pytest.mark.parametrize(
    ("event", "cause"),
    [
        (PodsFinished(T0, 3, T0), RetryCause.FAILED),
        (PodsFinished(T0, 137, T0), RetryCause.FAILED),
        (PodsFinished(T0, 137, T0, reason=Reason(ReasonCode.OUT_OF_MEMORY, "Too much.")), RetryCause.FAILED),
        (LOST, RetryCause.NODE_LOST),
        (PodsLost("Pod job-1-1-0 is gone."), RetryCause.NODE_LOST),
        (PodsFinished(T0, None, T0), RetryCause.NODE_LOST),
        (EVICTED, RetryCause.PREEMPTED),
        (MAINTENANCE, RetryCause.PREEMPTED),
    ],
    ids=lambda value: value.value if isinstance(value, RetryCause) else type(value).__name__,
)
def test_it_runs_again_after_the_ends_that_its_owner_names(event: object, cause: RetryCause) -> None:
    again = ended(running(frozenset({cause})), event)
    assert (again.status, again.retried, again.reason.code) == (JobStatus.QUEUED, 1, ReasonCode.REQUEUED)
    assert (again.started_at, again.ends_at, again.exit_code, again.range_end) == (None, None, None, None)
    for row in (running(ALL - {cause}), running(frozenset({cause}), retried=2), replace(running(), retries=None)):
        assert ended(row, event).status in FINAL_STATUSES


def test_the_ledger_is_told_of_the_run_and_the_log_of_its_end() -> None:
    ending, _ = transition(running(), PodsFinished(T0, 3, T0), T0)
    again, effects = transition(ending, PodsGone(), T0)
    data = {"attempt": 1, "cause": "command_failed", "exit_code": 3}
    assert effects == (ReleaseGpus(T0), WakePlanner(), Record("retried", data=data))
    said = "Attempt 1 ended because its command failed (exit code 3). This is retry 1 of 2; there is nothing to do."
    assert again.reason.detail == said


@pytest.mark.parametrize(
    "event",
    [
        PodsFinished(T0, 0, T0),
        PodsFinished(T0, None, None, reason=Reason(ReasonCode.DURATION_REACHED, "Its time is over.")),
        CancelRequested("alice", by_admin=False),
        BookingOver(JobStatus.EXPIRED, Reason(ReasonCode.BOOKING_OVER, "The booking ended.")),
    ],
    ids=lambda event: type(event).__name__,
)
def test_what_is_done_or_ended_on_purpose_is_not_repeated(event: object) -> None:
    assert ended(running(), event).status in FINAL_STATUSES


@pytest.mark.parametrize(
    ("event", "status"),
    [
        (CancelRequested("alice", by_admin=False), JobStatus.CANCELLED),
        (BookingOver(JobStatus.EXPIRED, Reason(ReasonCode.BOOKING_OVER, "The booking ended.")), JobStatus.EXPIRED),
    ],
    ids=("cancelled", "booking over"),
)
def test_it_can_be_ended_while_its_pods_still_go(event: object, status: JobStatus) -> None:
    ending, _ = transition(running(), PodsFinished(T0, 3, T0), T0)
    assert ended(ending, event).status is status
    given_up, _ = transition(running(frozenset({RetryCause.PREEMPTED})), PodsFinished(T0, 3, T0), T0)
    assert ended(given_up, event).status is JobStatus.FAILED


def test_planned_maintenance_that_ends_a_run_is_retried() -> None:
    """Its end was moved an hour before; the clock or the cluster tells of it, and the reason is the window."""
    window = DrainBefore(T0 + HOUR, T0 + 2 * HOUR, GRACE, "Maintenance of n1.", "root")
    row, _ = transition(running(ends_at=T0 + 3 * HOUR, range_end=T0 + 3 * HOUR), window, T0)
    assert (row.status, row.reason.code) == (JobStatus.RUNNING, ReasonCode.MAINTENANCE)
    over = PodsFinished(T0 + HOUR, None, None, reason=Reason(ReasonCode.DURATION_REACHED, "The deadline."))
    for event in (EndReached(), over):
        ending, _ = transition(row, event, T0 + HOUR)
        assert (ending.outcome, ending.reason.code) == (JobStatus.EXPIRED, ReasonCode.MAINTENANCE)
        assert transition(ending, PodsGone(), T0 + HOUR)[0].status is JobStatus.QUEUED


def test_a_ledger_from_before_a_retry_takes_its_pods_over() -> None:
    """A restored backup knows the first run alone, and the second one goes on."""
    found = Adopted(2, (HeldGpu("n1", 0, 0),), T0 + HOUR)
    after, effects = transition(running(most=1), found, T0)
    assert (after.status, after.attempt, after.retried) == (JobStatus.STARTING, 2, 1)
    assert ReleaseGpus(T0) in effects
    for row in (running(most=1, retried=1), running(retries=None)):
        assert transition(row, found, T0) == (row, ())


def test_starts_that_were_given_up_are_no_retry() -> None:
    for code in (ReasonCode.EVICTED, ReasonCode.NODE_LOST):
        starting = running(started_at=None, ends_at=None, attempt=STARTS, status=JobStatus.STARTING)
        given_up, _ = transition(starting, StartFailed(Reason(code, "No."), STARTS), T0)
        over, _ = transition(given_up, PodsGone(), T0)
        assert (over.status, over.retried) == (JobStatus.FAILED, 0)


def test_a_run_is_no_failed_start() -> None:
    """Of three starts two may fail, before the first run as after it."""
    failed = StartFailed(Reason(ReasonCode.START_FAILED, "No."), STARTS)
    row = ended(running(attempt=2), PodsFinished(T0, 3, T0))
    third = replace(row, status=JobStatus.STARTING, attempt=3)
    assert transition(third, failed, T0)[0].outcome is JobStatus.QUEUED
    fourth = replace(row, status=JobStatus.STARTING, attempt=4)
    assert transition(fourth, failed, T0)[0].outcome is JobStatus.FAILED


@given(
    st.integers(1, 4),
    st.sets(st.sampled_from(RetryCause), min_size=1).map(frozenset),
    st.lists(
        st.sampled_from([PodsFinished(T0, 3, T0), LOST, EVICTED, MAINTENANCE, PodsFinished(T0, 0, T0)]), max_size=9
    ),
)
def test_any_ends_one_after_the_other(most: int, causes: frozenset[RetryCause], events: list[object]) -> None:
    """It ends with the first end that is not to be retried, or that has no retry left: counted by hand here."""
    row, left = running(causes, most), most
    names = {3: RetryCause.FAILED, 0: None}
    for event in events:
        if row.status in FINAL_STATUSES:
            break
        cause = RetryCause.NODE_LOST if event is LOST else RetryCause.PREEMPTED
        if isinstance(event, PodsFinished) and event is not EVICTED:
            cause = names[event.exit_code or 0]  # type: ignore[assignment]
        row = ended(row, event)
        assert (row.status is JobStatus.QUEUED) == (cause in causes and left > 0)
        left -= row.status is JobStatus.QUEUED
        assert row.retried == most - left
        if row.status is JobStatus.QUEUED:
            row = replace(row, status=JobStatus.STARTING, attempt=row.attempt + 1, range_end=T0 + HOUR)
            row, _ = transition(row, PodsRunning(T0, timedelta(0)), T0)


def test_no_start_that_failed_is_a_retry() -> None:
    starts = {ReasonCode.START_FAILED, ReasonCode.START_TIMEOUT, ReasonCode.UNSCHEDULABLE, ReasonCode.IMAGE_PULL_FAILED}
    assert not starts & CAUSES.keys()

"""Starts that do not come about: the way back to the queue, and what happens on it."""

from dataclasses import replace

import pytest

from reservation_core.domain.changes import (
    AvoidNodes,
    CancelRequested,
    DeletePods,
    Event,
    ExtendRequested,
    PodsFinished,
    PodsGone,
    PodsRunning,
    Record,
    ReleaseGpus,
    SetRangeEnd,
    StartDelayed,
    StartFailed,
    StartRefused,
    StartTimedOut,
    WakePlanner,
)
from reservation_core.domain.errors import NotExtendableError
from reservation_core.domain.jobs.lifecycle import transition
from reservation_core.domain.model import Reason, Reservation
from reservation_core.domain.statuses import JobStatus, ReasonCode
from tests.unit.reservation_core.domain.jobs.life.lives import (
    ALLOWANCE,
    HOUR,
    NO_IMAGE,
    REFUSED,
    STARTS,
    T0,
    ending,
    final,
    kinds,
    queued,
    running,
    starting,
)


@pytest.mark.parametrize(
    ("event", "code"),
    [(StartRefused(REFUSED), ReasonCode.START_FAILED), (StartTimedOut(ALLOWANCE, 1), ReasonCode.START_TIMEOUT)],
)
def test_a_start_that_does_not_come_about_fails_it(event: Event, code: ReasonCode) -> None:
    after, effects = transition(starting(), event, T0)
    assert (after.status, after.outcome, after.reason.code) == (JobStatus.ENDING, JobStatus.FAILED, code)
    assert kinds(effects) == [DeletePods, Record]
    for row in (queued(), running(), ending(), final()):
        assert transition(row, event, T0) == (row, ())


@pytest.mark.parametrize(
    ("event", "kind", "cause"),
    [
        (StartFailed(NO_IMAGE, STARTS), "start_failed", "image_pull_failed"),
        (StartTimedOut(ALLOWANCE, STARTS), "start_timed_out", "start_timeout"),
    ],
)
def test_what_could_not_start_is_queued_again_when_its_pods_are_gone(event: Event, kind: str, cause: str) -> None:
    taken, effects = transition(starting(), event, T0)
    assert (taken.status, taken.outcome, taken.reason.code) == (JobStatus.ENDING, JobStatus.QUEUED, ReasonCode.REQUEUED)
    assert taken.reason.detail.startswith("Attempt 1 of 3 did not start: ")
    assert effects == (DeletePods(), AvoidNodes(), Record(kind, data={"attempt": 1, "cause": cause}))
    again, effects = transition(taken, PodsGone(), T0)
    assert again == replace(queued(), attempt=1, reason=taken.reason)
    assert effects == (ReleaseGpus(), WakePlanner(), Record("requeued"))


def test_a_start_is_tried_a_bounded_number_of_times_and_then_fails_with_its_last_cause() -> None:
    row = queued()
    for _ in range(STARTS - 1):
        row, _ = transition(starting(row), StartTimedOut(ALLOWANCE, STARTS), T0)
        row, _ = transition(row, PodsGone(), T0)
        assert row.status is JobStatus.QUEUED
    row, effects = transition(starting(row), StartFailed(NO_IMAGE, STARTS), T0)
    assert (row.status, row.outcome) == (JobStatus.ENDING, JobStatus.FAILED)
    assert row.reason == Reason(NO_IMAGE.code, NO_IMAGE.detail + " It was tried 3 times.")
    assert kinds(effects) == [DeletePods, Record]


def test_a_start_that_timed_out_says_what_the_cluster_said_last() -> None:
    delayed, effects = transition(starting(), StartDelayed(NO_IMAGE), T0)
    assert (delayed.status, delayed.reason) == (JobStatus.STARTING, NO_IMAGE)
    assert effects == (Record("start_delayed"),)
    assert transition(delayed, StartDelayed(NO_IMAGE), T0) == (delayed, ())
    failed, _ = transition(delayed, StartTimedOut(ALLOWANCE, 1), T0)
    assert (failed.outcome, failed.reason) == (JobStatus.FAILED, NO_IMAGE)
    taken, _ = transition(delayed, StartTimedOut(ALLOWANCE, 2), T0)
    assert NO_IMAGE.detail in taken.reason.detail


@pytest.mark.parametrize("event", [StartDelayed(NO_IMAGE), StartFailed(NO_IMAGE, STARTS)])
@pytest.mark.parametrize("row", [queued(), running(), ending(), final()])
def test_only_what_starts_is_delayed_or_fails_to_start(row: Reservation, event: Event) -> None:
    assert transition(row, event, T0) == (row, ())


def test_a_cancel_wins_over_going_back_to_the_line() -> None:
    taken, _ = transition(starting(), StartFailed(NO_IMAGE, STARTS), T0)
    cancelled, effects = transition(taken, CancelRequested("alice"), T0)
    assert (cancelled.outcome, cancelled.reason.code) == (JobStatus.CANCELLED, ReasonCode.CANCELLED_BY_USER)
    assert effects == (Record("cancel_requested", "alice"),)
    assert transition(cancelled, PodsGone(), T0)[0].status is JobStatus.CANCELLED


def test_who_goes_back_to_the_line_can_be_extended() -> None:
    taken, _ = transition(starting(), StartFailed(NO_IMAGE, STARTS), T0)
    longer, effects = transition(taken, ExtendRequested("alice", HOUR, 2 * HOUR), T0)
    assert longer == replace(taken, duration=2 * HOUR)
    assert SetRangeEnd not in kinds(effects)


def test_what_has_done_its_work_while_it_was_taken_back_is_not_run_again() -> None:
    taken, _ = transition(starting(), StartTimedOut(ALLOWANCE, STARTS), T0)
    done, _ = transition(taken, PodsFinished(T0, 0, started_at=T0), T0)
    assert (done.outcome, done.exit_code, done.started_at) == (JobStatus.SUCCEEDED, 0, T0)
    late, _ = transition(taken, PodsRunning(T0), T0)
    assert transition(late, PodsFinished(T0, 0, started_at=T0), T0)[0] == done
    gang = replace(taken, nodes=2)
    assert transition(gang, PodsFinished(T0, 0, started_at=T0), T0) == (gang, ())


@pytest.mark.parametrize("event", [PodsRunning(T0), PodsFinished(T0, 143, started_at=T0)])
def test_what_began_to_run_when_it_had_been_taken_back_is_not_run_again(event: Event) -> None:
    taken, _ = transition(starting(), StartTimedOut(ALLOWANCE, STARTS), T0)
    late, effects = transition(taken, event, T0)
    assert late == replace(taken, started_at=T0)
    assert effects == (Record("started_late"),)
    with pytest.raises(NotExtendableError):
        transition(late, ExtendRequested("alice", HOUR, 2 * HOUR), T0)
    over, effects = transition(late, PodsGone(), T0)
    assert (over.status, over.reason.code, over.finished_at) == (JobStatus.FAILED, ReasonCode.START_TIMEOUT, T0)
    assert effects == (ReleaseGpus(), WakePlanner(), Record("failed"))

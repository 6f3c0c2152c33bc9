"""What a job's pods say: that they run, have finished, or are lost."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from reservation_core.domain.changes import (
    DeletePods,
    PodsFinished,
    PodsGone,
    PodsLost,
    PodsRunning,
    Record,
    SetRangeEnd,
    WakePlanner,
)
from reservation_core.domain.jobs.lifecycle import transition
from reservation_core.domain.model import Reason, Reservation
from reservation_core.domain.statuses import JobStatus, ReasonCode
from tests.unit.reservation_core.domain.jobs.life.lives import (
    ALLOWANCE,
    HOUR,
    REFUSED,
    T0,
    ending,
    final,
    kinds,
    queued,
    running,
    starting,
)


def test_what_runs_keeps_its_cards_until_its_pods_are_gone_but_not_beyond_its_range() -> None:
    begun = T0 + timedelta(seconds=5)
    grace = timedelta(seconds=10)
    after, effects = transition(starting(), PodsRunning(begun, grace), begun)
    assert (after.ends_at, after.range_end) == (begun + HOUR, begun + HOUR + grace)
    assert effects[0] == SetRangeEnd(begun + HOUR + grace)
    short = replace(starting(), range_end=begun + HOUR + timedelta(seconds=3))
    after, _ = transition(short, PodsRunning(begun, grace), begun)
    assert (after.ends_at, after.range_end) == (short.range_end - grace, short.range_end)


def test_running_pods_make_it_run_and_give_back_what_the_start_did_not_need() -> None:
    begun = T0 + timedelta(seconds=10)
    after, effects = transition(starting(), PodsRunning(begun), begun + timedelta(seconds=1))
    assert (after.status, after.started_at, after.ends_at) == (JobStatus.RUNNING, begun, begun + HOUR)
    assert after.range_end == after.ends_at
    assert effects == (SetRangeEnd(begun + HOUR), WakePlanner(), Record("started"))


def test_a_late_start_is_cut_at_the_end_of_its_range() -> None:
    late = T0 + ALLOWANCE + timedelta(minutes=30)
    after, _ = transition(starting(), PodsRunning(late), late)
    assert after.ends_at == T0 + ALLOWANCE + HOUR


def test_a_start_reported_from_the_future_counts_from_now() -> None:
    after, _ = transition(starting(), PodsRunning(T0 + HOUR), T0)
    assert after.started_at == T0


@pytest.mark.parametrize("row", [queued(), running(), ending(), final()])
def test_running_pods_say_nothing_new_to_others(row: Reservation) -> None:
    assert transition(row, PodsRunning(T0), T0) == (row, ())


@pytest.mark.parametrize(
    ("event", "outcome", "code"),
    [
        (PodsFinished(T0, 0), JobStatus.SUCCEEDED, ReasonCode.COMPLETED),
        (PodsFinished(T0, 3), JobStatus.FAILED, ReasonCode.COMMAND_FAILED),
        (PodsFinished(T0, 128), JobStatus.FAILED, ReasonCode.COMMAND_FAILED),
        (PodsFinished(T0, 137), JobStatus.FAILED, ReasonCode.KILLED_BY_SIGNAL),
        (PodsFinished(T0, None), JobStatus.FAILED, ReasonCode.POD_LOST),
        (
            PodsFinished(T0, 137, reason=Reason(ReasonCode.OUT_OF_MEMORY, "Too large.")),
            JobStatus.FAILED,
            ReasonCode.OUT_OF_MEMORY,
        ),
        (
            PodsFinished(T0, 143, reason=Reason(ReasonCode.DURATION_REACHED, "Time is up.")),
            JobStatus.EXPIRED,
            ReasonCode.DURATION_REACHED,
        ),
    ],
)
@pytest.mark.parametrize("row", [starting(), running()])
def test_finished_pods_end_it(row: Reservation, event: PodsFinished, outcome: JobStatus, code: ReasonCode) -> None:
    after, effects = transition(row, event, T0)
    assert (after.status, after.outcome, after.reason.code, after.exit_code) == (
        JobStatus.ENDING,
        outcome,
        code,
        event.exit_code,
    )
    assert kinds(effects) == [DeletePods, Record]


@pytest.mark.parametrize(
    ("event", "started_at"),
    [
        (PodsFinished(T0 + HOUR, 127, started_at=T0, reason=REFUSED), None),
        (PodsFinished(T0 + HOUR, 127, reason=REFUSED), None),
        (PodsFinished(T0 + HOUR, None), None),
        (PodsFinished(T0 + HOUR, 3, started_at=T0), T0),
    ],
)
def test_only_what_ran_has_a_start(event: PodsFinished, started_at: datetime | None) -> None:
    after, _ = transition(starting(), event, T0 + HOUR)
    assert (after.status, after.started_at) == (JobStatus.ENDING, started_at)
    over, _ = transition(after, PodsGone(), T0 + HOUR)
    assert over.started_at == started_at
    kept, _ = transition(running(), event, T0 + HOUR)
    assert kept.started_at == running().started_at


def test_an_exit_code_that_comes_while_ending_is_kept_and_changes_no_outcome() -> None:
    row = ending()
    after, effects = transition(row, PodsFinished(T0, 143), T0)
    assert after == replace(row, exit_code=143)
    assert kinds(effects) == [Record]
    assert transition(after, PodsFinished(T0, 0), T0) == (after, ())


@pytest.mark.parametrize("row", [queued(), final()])
def test_finished_pods_say_nothing_to_others(row: Reservation) -> None:
    assert transition(row, PodsFinished(T0, 0), T0) == (row, ())


@pytest.mark.parametrize("row", [starting(), running()])
def test_a_lost_pod_fails_it(row: Reservation) -> None:
    after, effects = transition(row, PodsLost("It is gone."), T0)
    assert (after.status, after.outcome) == (JobStatus.ENDING, JobStatus.FAILED)
    assert after.reason == Reason(ReasonCode.POD_LOST, "It is gone.")
    assert kinds(effects) == [DeletePods, Record]


@pytest.mark.parametrize("row", [queued(), ending(), final()])
def test_a_lost_pod_says_nothing_to_others(row: Reservation) -> None:
    assert transition(row, PodsLost("It is gone."), T0) == (row, ())


def test_a_pod_of_a_gang_is_named_when_it_ends_the_gang() -> None:
    failed, _ = transition(running(), PodsFinished(T0, 3, pod="job-1-1-1"), T0)
    assert failed.reason.detail == "The command of pod job-1-1-1 ended with exit code 3; its log may say why."


@pytest.mark.parametrize("code", [ReasonCode.POD_DELETED, ReasonCode.EVICTED, ReasonCode.NODE_LOST])
def test_a_running_job_whose_pod_is_taken_away_fails_and_is_never_restarted(code: ReasonCode) -> None:
    for event in (PodsLost("Gone.", code), PodsFinished(T0, None, started_at=T0, reason=Reason(code, "Gone."))):
        after, _ = transition(running(), event, T0)
        assert (after.outcome, after.reason) == (JobStatus.FAILED, Reason(code, "Gone."))

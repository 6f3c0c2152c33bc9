"""What people ask of a job: to cancel it, and to extend it."""

from dataclasses import replace

import pytest

from reservation_core.domain.changes import (
    CancelRequested,
    DecidedChange,
    DeletePods,
    ExtendRequested,
    MoveDeadline,
    PodsFinished,
    PodsRunning,
    Record,
    Replan,
    SetRangeEnd,
    WakePlanner,
)
from reservation_core.domain.errors import AlreadyFinalError, LimitExceededError, NotExtendableError
from reservation_core.domain.jobs.lifecycle import decide, transition
from reservation_core.domain.model import Reason, Reservation
from reservation_core.domain.statuses import JobStatus, ReasonCode
from tests.unit.reservation_core.domain.jobs.life.lives import HOUR, T0, ending, final, kinds, queued, running, starting


def test_a_waiting_job_is_cancelled_at_once() -> None:
    after, effects = transition(queued(), CancelRequested("alice"), T0)
    assert (after.status, after.finished_at) == (JobStatus.CANCELLED, T0)
    assert after.reason == Reason(ReasonCode.CANCELLED_BY_USER, "Cancelled by alice.")
    assert effects == (WakePlanner(), Record("cancelled", "alice"))


@pytest.mark.parametrize("row", [starting(), running()])
def test_what_holds_gpus_is_brought_to_its_end_first(row: Reservation) -> None:
    after, effects = transition(row, CancelRequested("root", by_admin=True), T0)
    assert (after.status, after.outcome, after.finished_at) == (JobStatus.ENDING, JobStatus.CANCELLED, None)
    assert after.reason.code is ReasonCode.CANCELLED_BY_ADMIN
    assert effects == (DeletePods(), Record("cancel_requested", "root"))


def test_the_first_reason_of_an_end_stands() -> None:
    row = ending(PodsFinished(T0, 0))
    assert transition(row, CancelRequested("alice"), T0) == (row, ())


def test_what_is_over_is_not_cancelled() -> None:
    with pytest.raises(AlreadyFinalError, match="nothing to cancel"):
        transition(final(), CancelRequested("alice"), T0)


def test_a_waiting_job_is_extended_by_its_duration() -> None:
    after, effects = transition(queued(), ExtendRequested("alice", HOUR, 2 * HOUR), T0)
    assert after == replace(queued(), duration=2 * HOUR)
    assert effects == (Replan(), WakePlanner(), Record("extended", "alice", {"by_s": 3600}))


def test_a_starting_job_is_extended_by_its_range() -> None:
    row = starting()
    assert row.range_end is not None
    after, effects = transition(row, ExtendRequested("alice", HOUR, 2 * HOUR), T0)
    assert (after.duration, after.range_end, after.ends_at) == (2 * HOUR, row.range_end + HOUR, None)
    assert kinds(effects) == [SetRangeEnd, MoveDeadline, WakePlanner, Record]


def test_a_running_job_is_extended_by_its_end_and_warned_anew() -> None:
    row = replace(running(), warned_s=300)
    assert row.ends_at is not None
    after, effects = transition(row, ExtendRequested("alice", HOUR, 2 * HOUR), T0)
    assert (after.duration, after.ends_at, after.warned_s) == (2 * HOUR, row.ends_at + HOUR, None)
    assert after.range_end == after.ends_at
    assert effects[0] == SetRangeEnd(row.ends_at + HOUR)
    assert kinds(effects) == [SetRangeEnd, MoveDeadline, WakePlanner, Record]


@pytest.mark.parametrize(
    ("row", "error", "words"),
    [
        (final(), AlreadyFinalError, "submit a new job"),
        (ending(), NotExtendableError, "submit a new job"),
        (queued(), LimitExceededError, "would last 3h; at most 2h are allowed. Extend it by less"),
        (running(), LimitExceededError, "Extend it by less"),
    ],
)
def test_what_can_not_be_extended_says_what_to_do(row: Reservation, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        transition(row, ExtendRequested("alice", 2 * HOUR, 2 * HOUR), T0)


def test_decide_answers_none_when_there_is_nothing_to_write() -> None:
    assert decide(running(), PodsRunning(T0), T0) is None
    change = decide(queued(), CancelRequested("alice"), T0)
    assert isinstance(change, DecidedChange)
    assert (change.before, change.at) == (queued(), T0)

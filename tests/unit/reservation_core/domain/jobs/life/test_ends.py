"""How a job comes to its end: warnings, the end of its time, and GPUs that are given back."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from reservation_core.domain.changes import (
    CancelRequested,
    DeletePods,
    EndReached,
    Event,
    LeftAlone,
    PodsFinished,
    PodsGone,
    PodsLost,
    PodsRunning,
    Record,
    ReleaseGpus,
    WakePlanner,
    WarningDue,
)
from reservation_core.domain.jobs.lifecycle import transition
from reservation_core.domain.model import Reason, Reservation
from reservation_core.domain.statuses import JobStatus, ReasonCode
from tests.unit.reservation_core.domain.jobs.life.lives import HOUR, T0, ending, final, kinds, queued, running, starting


def test_what_runs_in_a_booking_ends_in_time_for_who_comes_after_it() -> None:
    row = replace(starting(), booking_id="bkg-1", duration=5 * HOUR, range_end=T0 + HOUR)
    grace = timedelta(seconds=10)
    after, _ = transition(row, PodsRunning(T0, grace), T0)
    assert (after.ends_at, after.range_end) == (T0 + HOUR - grace, T0 + HOUR)
    # Where no time is left for that, what is left is used.
    short, _ = transition(replace(row, range_end=T0 + grace), PodsRunning(T0, grace), T0)
    assert short.ends_at == short.range_end == T0 + grace
    # Its own end comes earlier: nothing is taken of it.
    own, _ = transition(replace(row, duration=HOUR / 2), PodsRunning(T0, grace), T0)
    assert (own.ends_at, own.range_end) == (T0 + HOUR / 2, T0 + HOUR / 2 + grace)


@pytest.mark.parametrize(
    ("event", "status"),
    [
        (CancelRequested("alice"), JobStatus.CANCELLED),
        (PodsFinished(T0, 0), JobStatus.SUCCEEDED),
        (PodsFinished(T0, 1), JobStatus.FAILED),
        (PodsLost("It is gone."), JobStatus.FAILED),
    ],
)
def test_gone_pods_give_the_gpus_back_and_end_it_for_good(event: Event, status: JobStatus) -> None:
    row = ending(event)
    after, effects = transition(row, PodsGone(), T0 + HOUR)
    assert (after.status, after.outcome, after.finished_at) == (status, None, T0 + HOUR)
    assert after.reason == row.reason
    assert effects == (ReleaseGpus(), WakePlanner(), Record(status.value))


def test_nothing_is_let_go_while_a_pod_that_was_asked_for_may_come() -> None:
    row = replace(ending(), unsettled_until=T0 + HOUR)
    assert transition(row, PodsGone(), T0 + HOUR - timedelta(microseconds=1)) == (row, ())
    assert transition(row, PodsGone(), T0 + HOUR)[0].status is JobStatus.CANCELLED


@pytest.mark.parametrize("row", [queued(), starting(), running(), final()])
def test_gone_pods_release_nothing_of_others(row: Reservation) -> None:
    assert transition(row, PodsGone(), T0) == (row, ())


def test_the_end_is_reached_at_its_moment_and_not_before() -> None:
    row = running()
    assert row.ends_at is not None
    assert transition(row, EndReached(), row.ends_at - timedelta(microseconds=1)) == (row, ())
    after, effects = transition(row, EndReached(), row.ends_at)
    assert (after.status, after.outcome) == (JobStatus.ENDING, JobStatus.EXPIRED)
    assert after.reason.code is ReasonCode.DURATION_REACHED
    assert re.match(r"The job reached its end after \d+ (second|minute|hour|day)", after.reason.detail)
    assert kinds(effects) == [DeletePods, Record]


@pytest.mark.parametrize("row", [queued(), starting(), ending(), final()])
def test_only_what_runs_reaches_its_end(row: Reservation) -> None:
    assert transition(row, EndReached(), T0 + 100 * HOUR) == (row, ())


@pytest.mark.parametrize(
    ("finished_s", "outcome"),
    [
        (-0.001, JobStatus.FAILED),  # to the microsecond: over before the clock looked
        (-0.7, JobStatus.EXPIRED),  # a whole second, which the end lies in
        (-1.7, JobStatus.FAILED),
        (0.2, JobStatus.EXPIRED),
    ],
)
def test_what_ends_within_the_second_of_its_end_has_reached_it_where_seconds_are_whole(
    finished_s: float, outcome: JobStatus
) -> None:
    """The end lies 0.7 s after a whole second, as it does where the start is known exactly."""
    ends_at = T0.replace(microsecond=0) + timedelta(hours=1, seconds=0.7)
    row, _ = transition(replace(running(), ends_at=ends_at), EndReached(), ends_at)
    after, _ = transition(row, PodsFinished(ends_at + timedelta(seconds=finished_s), 1), ends_at + HOUR)
    assert after.outcome is outcome


def test_a_warning_is_given_once_and_only_a_nearer_one_after_it() -> None:
    row = running()
    assert row.ends_at is not None
    early = row.ends_at - timedelta(seconds=901)
    assert transition(row, WarningDue(900), early) == (row, ())
    now = row.ends_at - timedelta(seconds=900)
    warned, effects = transition(row, WarningDue(900), now)
    assert warned.warned_s == 900
    assert effects == (Record("end_warning", data={"ends_at": row.ends_at.isoformat(), "seconds_left": 900}),)
    assert transition(warned, WarningDue(900), now) == (warned, ())
    assert transition(warned, WarningDue(1800), now) == (warned, ())
    nearer, _ = transition(warned, WarningDue(300), row.ends_at)
    assert nearer.warned_s == 300


@pytest.mark.parametrize("row", [queued(), starting(), ending(), final()])
def test_only_what_runs_is_warned(row: Reservation) -> None:
    assert transition(row, WarningDue(900), T0 + 100 * HOUR) == (row, ())


def test_who_finished_in_time_has_not_expired_however_late_it_is_seen() -> None:
    row = running()
    assert row.ends_at is not None
    expired, _ = transition(row, EndReached(), row.ends_at + HOUR)
    before, after = row.ends_at - timedelta(seconds=1), row.ends_at + timedelta(seconds=1)
    seen, effects = transition(expired, PodsFinished(before, 0), row.ends_at + HOUR)
    assert (seen.outcome, seen.exit_code) == (JobStatus.SUCCEEDED, 0)
    assert effects == (Record("exited", data={"exit_code": 0}),)
    ours = Reason(ReasonCode.POD_DELETED, "Somebody deleted it.")
    ended, _ = transition(expired, PodsFinished(before, 143, reason=ours), row.ends_at + HOUR)
    assert (ended.outcome, ended.reason) == (JobStatus.EXPIRED, expired.reason)
    late, _ = transition(expired, PodsFinished(after, 143), row.ends_at + HOUR)
    assert (late.outcome, late.exit_code) == (JobStatus.EXPIRED, 143)


@pytest.mark.parametrize("exit_code", [0, 143])
def test_a_session_that_was_left_alone_has_expired_however_its_pod_ends(exit_code: int) -> None:
    """Its command takes SIGTERM and ends well on Kubernetes, and dies of it elsewhere; both long before its time."""
    row = replace(running(), inactivity=HOUR / 2)
    left, _ = transition(row, LeftAlone(), T0 + HOUR / 2)
    ended, _ = transition(left, PodsFinished(T0 + HOUR / 2, exit_code), T0 + HOUR / 2)
    assert (ended.outcome, ended.reason.code) == (JobStatus.EXPIRED, ReasonCode.INACTIVE)
    assert transition(ended, PodsGone(), T0 + HOUR)[0].status is JobStatus.EXPIRED


@pytest.mark.parametrize(
    ("at_s", "ran_s", "exit_code", "outcome"),
    [
        (300, 2.5, 0, JobStatus.SUCCEEDED),  # our clock was set by five minutes while it ran
        (300, 2.5, 1, JobStatus.FAILED),
        (300, 2.5, 143, JobStatus.EXPIRED),  # as above, but we ended it
        (-60, 3600.5, 143, JobStatus.EXPIRED),  # its node's clock is behind
        (-1, 3599, 0, JobStatus.SUCCEEDED),
        (0, 3600, 0, JobStatus.EXPIRED),  # whole seconds: it may have run for as long as it was given
        (-2, 2.5, 143, JobStatus.FAILED),
    ],
)
def test_for_how_long_it_ran_says_whether_it_was_over_in_time(
    at_s: float, ran_s: float, exit_code: int, outcome: JobStatus
) -> None:
    row = running()
    assert row.ends_at is not None
    assert row.started_at is not None
    assert row.ends_at - row.started_at == HOUR
    expired, _ = transition(row, EndReached(), row.ends_at)
    event = PodsFinished(row.ends_at + timedelta(seconds=at_s), exit_code, ran=timedelta(seconds=ran_s))
    assert transition(expired, event, row.ends_at + HOUR)[0].outcome is outcome

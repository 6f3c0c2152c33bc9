"""Jobs whose booking is over or whose GPUs go into maintenance: by example, and in any state."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.changes import (
    BookingOver,
    CancelRequested,
    DeletePods,
    DrainBefore,
    MoveDeadline,
    PodsFinished,
    PodsGone,
    PodsRunning,
    Record,
    SetRangeEnd,
    StartTimedOut,
    WakePlanner,
)
from reservation_core.domain.jobs.lifecycle import decide, transition
from reservation_core.domain.model import PodWorkload, Reason, Reservation
from reservation_core.domain.statuses import FINAL_STATUSES, JobStatus, ReasonCode, ReservationKind

T0 = datetime(2030, 1, 1, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)
GRACE = timedelta(seconds=10)
OVER = BookingOver(JobStatus.EXPIRED, Reason(ReasonCode.BOOKING_OVER, "The booking ended."))


def job(status: JobStatus = JobStatus.QUEUED, **fields: object) -> Reservation:
    made = Reservation(
        id="job-1",
        seq=1,
        kind=ReservationKind.JOB,
        user_id=1,
        user="alice",
        name=None,
        status=status,
        reason=Reason(ReasonCode.SUBMITTED, "Accepted."),
        gpus=1,
        gpu_type=None,
        nodes=1,
        duration=4 * HOUR,
        priority=0,
        workload=PodWorkload(),
        created_at=T0,
        version=1,
    )
    return replace(made, **fields)  # type: ignore[arg-type]


STARTING = job(JobStatus.STARTING, attempt=1, range_end=T0 + 5 * HOUR)
RUNNING = transition(STARTING, PodsRunning(T0), T0)[0]
ENDING = transition(RUNNING, CancelRequested("alice"), T0)[0]
TAKEN_BACK = transition(STARTING, StartTimedOut(HOUR, 3), T0)[0]
FINAL = transition(ENDING, PodsGone(), T0)[0]


def drain(at: datetime) -> DrainBefore:
    return DrainBefore(at, at + HOUR, GRACE, "Maintenance: new fans.", "root")


def kinds(effects: tuple[object, ...]) -> list[str]:
    return [effect.kind for effect in effects if isinstance(effect, Record)]


def test_who_waits_ends_with_the_booking() -> None:
    after, effects = transition(job(), OVER, T0 + HOUR)
    assert (after.status, after.reason.code, after.finished_at) == (
        JobStatus.EXPIRED,
        ReasonCode.BOOKING_OVER,
        T0 + HOUR,
    )
    assert (kinds(effects), WakePlanner() in effects) == (["booking_over"], True)


@pytest.mark.parametrize("row", [STARTING, RUNNING])
def test_what_runs_is_ended_and_its_range_with_it(row: Reservation) -> None:
    after, effects = transition(row, OVER, T0 + HOUR)
    assert (after.status, after.outcome, after.range_end) == (JobStatus.ENDING, JobStatus.EXPIRED, T0 + HOUR)
    assert effects[0] == SetRangeEnd(T0 + HOUR)
    assert DeletePods() in effects
    assert transition(after, OVER, T0 + HOUR) == (after, ())


@pytest.mark.parametrize("event", [OVER, drain(T0 + HOUR)])
def test_what_is_ended_before_its_time_says_why_and_not_by_which_signal(event: BookingOver | DrainBefore) -> None:
    after, _ = transition(RUNNING, event, T0 + HOUR)
    assert after.ends_at == T0 + HOUR
    for at, ran in ((HOUR + GRACE, None), (HOUR + GRACE, HOUR + GRACE), (HOUR - GRACE, HOUR + GRACE)):
        over, _ = transition(after, PodsFinished(T0 + at, 143, ran=ran), T0 + 2 * HOUR)
        assert (over.outcome, over.reason, over.exit_code) == (JobStatus.EXPIRED, after.reason, 143)


def test_what_ends_already_keeps_its_outcome_and_gives_the_rest_back() -> None:
    after, effects = transition(ENDING, OVER, T0 + HOUR)
    assert (after.outcome, effects) == (JobStatus.CANCELLED, (SetRangeEnd(T0 + HOUR), WakePlanner()))
    again, _ = transition(TAKEN_BACK, OVER, T0 + HOUR)
    assert (again.status, again.outcome) == (JobStatus.ENDING, JobStatus.EXPIRED)
    assert transition(FINAL, OVER, T0 + HOUR) == (FINAL, ())


def test_what_runs_beyond_a_window_ends_before_it() -> None:
    at = T0 + 2 * HOUR
    after, effects = transition(replace(RUNNING, warned_s=300), drain(at), T0 + HOUR)
    assert (after.status, after.ends_at, after.range_end, after.warned_s) == (
        JobStatus.RUNNING,
        at - GRACE,
        at,
        None,
    )
    assert effects[:3] == (SetRangeEnd(at), MoveDeadline(), WakePlanner())
    assert kinds(effects) == ["maintenance_affects"]
    assert "new fans" in after.reason.detail


def test_what_starts_may_run_until_the_window() -> None:
    after, effects = transition(STARTING, drain(T0 + 2 * HOUR), T0)
    assert (after.status, after.range_end, after.ends_at) == (JobStatus.STARTING, T0 + 2 * HOUR, None)
    running, _ = transition(after, PodsRunning(T0 + HOUR), T0 + HOUR)
    assert running.ends_at == T0 + 2 * HOUR
    assert MoveDeadline() in effects


@pytest.mark.parametrize("ahead", [timedelta(0), GRACE])
def test_a_window_now_ends_what_runs_and_queues_what_starts(ahead: timedelta) -> None:
    now = T0 + HOUR
    after, effects = transition(RUNNING, drain(now + ahead), now)
    assert (after.status, after.outcome, after.reason.code) == (
        JobStatus.ENDING,
        JobStatus.EXPIRED,
        ReasonCode.MAINTENANCE,
    )
    assert (SetRangeEnd(now + ahead) in effects, DeletePods() in effects) == (True, True)
    after, effects = transition(STARTING, drain(now + ahead), now)
    assert (after.status, after.outcome, after.reason.code) == (
        JobStatus.ENDING,
        JobStatus.QUEUED,
        ReasonCode.REQUEUED,
    )
    gone, _ = transition(after, PodsGone(), now)
    assert gone.status is JobStatus.QUEUED


def test_what_ends_before_the_window_anyway_is_left_alone() -> None:
    for row in (STARTING, RUNNING, ENDING, job(), FINAL):
        assert transition(row, drain(T0 + 6 * HOUR), T0) == (row, ())


@given(st.sampled_from([job(), STARTING, RUNNING, ENDING, TAKEN_BACK, FINAL]), st.integers(0, 6), st.integers(0, 6))
def test_nobody_s_range_reaches_into_a_window(row: Reservation, start: int, passed: int) -> None:
    now, at = T0 + passed * HOUR, T0 + start * HOUR
    change = decide(row, drain(at), now)
    after = row if change is None else change.after
    if after.range_end is not None and after.status not in FINAL_STATUSES:
        assert after.range_end <= max(at, now)
    if after.ends_at is not None and after.status is JobStatus.RUNNING:
        assert after.ends_at <= at or after.ends_at <= now
    assert decide(after, drain(at), now) is None

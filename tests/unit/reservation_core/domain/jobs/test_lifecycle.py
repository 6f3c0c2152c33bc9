"""The life of a reservation: every transition and refusal by example, and any order of events by property."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.changes import (
    AvoidNodes,
    CancelRequested,
    DecidedChange,
    DeletePods,
    DependenciesMet,
    DependencyFailed,
    EndReached,
    Event,
    ExtendRequested,
    LeftAlone,
    MoveDeadline,
    NodeFenced,
    PodsFinished,
    PodsGone,
    PodsLost,
    PodsRunning,
    Record,
    ReleaseGpus,
    Replan,
    SetRangeEnd,
    StartDelayed,
    StartFailed,
    StartRefused,
    StartTimedOut,
    WakePlanner,
    WarningDue,
)
from reservation_core.domain.errors import AlreadyFinalError, LimitExceededError, NotExtendableError
from reservation_core.domain.jobs.lifecycle import decide, transition
from reservation_core.domain.model import (
    FINAL_STATUSES,
    LIVE_STATUSES,
    JobStatus,
    PodWorkload,
    Reason,
    ReasonCode,
    Reservation,
    ReservationKind,
)
from tests.examples import examples

T0 = datetime(2030, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
ALLOWANCE = timedelta(minutes=2)
REFUSED = Reason(ReasonCode.START_FAILED, "The image does not exist.")
NO_IMAGE = Reason(ReasonCode.IMAGE_PULL_FAILED, "The image can't be pulled.")
STARTS = 3
LIFE = (JobStatus.QUEUED, JobStatus.STARTING, JobStatus.RUNNING, JobStatus.ENDING)
TYPED = (AlreadyFinalError, NotExtendableError, LimitExceededError)


def queued() -> Reservation:
    """A job that waits."""
    return Reservation(
        id="job-1",
        seq=1,
        kind=ReservationKind.JOB,
        user_id=1,
        user="alice",
        name=None,
        status=JobStatus.QUEUED,
        reason=Reason(ReasonCode.SUBMITTED, "Accepted."),
        gpus=1,
        gpu_type=None,
        nodes=1,
        duration=HOUR,
        priority=0,
        workload=PodWorkload(),
        created_at=T0,
        version=1,
    )


def starting(row: Reservation | None = None, now: datetime = T0) -> Reservation:
    """What the planner's bulk statement makes of a waiting job."""
    row = row or queued()
    return replace(row, status=JobStatus.STARTING, attempt=row.attempt + 1, range_end=now + ALLOWANCE + row.duration)


def running() -> Reservation:
    """Running since ten seconds after its allocation."""
    return transition(starting(), PodsRunning(T0 + timedelta(seconds=10)), T0 + timedelta(seconds=11))[0]


def ending(event: Event | None = None) -> Reservation:
    """Ending, by default because it was cancelled."""
    return transition(running(), event or CancelRequested("alice"), T0 + timedelta(minutes=1))[0]


def final(event: Event | None = None) -> Reservation:
    """Over, by default because it was cancelled."""
    return transition(ending(event), PodsGone(), T0 + timedelta(minutes=2))[0]


def kinds(effects: tuple[object, ...]) -> list[type]:
    return [type(effect) for effect in effects]


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


def test_a_pod_of_a_gang_is_named_when_it_ends_the_gang() -> None:
    failed, _ = transition(running(), PodsFinished(T0, 3, pod="job-1-1-1"), T0)
    assert failed.reason.detail == "The command of pod job-1-1-1 ended with exit code 3; its log may say why."


@pytest.mark.parametrize("code", [ReasonCode.POD_DELETED, ReasonCode.EVICTED, ReasonCode.NODE_LOST])
def test_a_running_job_whose_pod_is_taken_away_fails_and_is_never_restarted(code: ReasonCode) -> None:
    for event in (PodsLost("Gone.", code), PodsFinished(T0, None, started_at=T0, reason=Reason(code, "Gone."))):
        after, _ = transition(running(), event, T0)
        assert (after.outcome, after.reason) == (JobStatus.FAILED, Reason(code, "Gone."))


@dataclass(frozen=True)
class Allocated:
    """The planner's own transition, made by a statement: here only so that it takes its turn among the events."""


EVENTS = st.one_of(
    st.just(Allocated()),
    st.builds(PodsRunning, at=st.integers(-10, 8000).map(lambda s: T0 + timedelta(seconds=s))),
    st.builds(
        PodsFinished,
        at=st.integers(-10, 8000).map(lambda s: T0 + timedelta(seconds=s)),
        exit_code=st.sampled_from([None, 0, 1, 137, 255]),
        reason=st.sampled_from([None, Reason(ReasonCode.DURATION_REACHED, "Time is up."), REFUSED]),
    ),
    st.just(PodsLost("It is gone.")),
    st.just(StartRefused(REFUSED)),
    st.builds(StartDelayed, reason=st.sampled_from([NO_IMAGE, REFUSED])),
    st.builds(StartFailed, reason=st.sampled_from([NO_IMAGE, REFUSED]), max_starts=st.just(STARTS)),
    st.just(StartTimedOut(ALLOWANCE, STARTS)),
    st.just(NodeFenced("a", "root", "No power.", STARTS)),
    st.just(PodsGone()),
    st.just(EndReached()),
    st.just(DependenciesMet()),
    st.builds(DependencyFailed, reason=st.just(Reason(ReasonCode.DEPENDENCY_FAILED, "Another job failed."))),
    st.builds(WarningDue, before_s=st.sampled_from([300, 900, 1800])),
    st.builds(CancelRequested, actor=st.just("alice"), by_admin=st.booleans()),
    st.builds(
        ExtendRequested,
        actor=st.just("alice"),
        by=st.integers(1, 7200).map(lambda s: timedelta(seconds=s)),
        longest=st.just(4 * HOUR),
    ),
)


def _place(status: JobStatus) -> int:
    return len(LIFE) if status in FINAL_STATUSES else LIFE.index(status)


def _check_state(row: Reservation) -> None:
    assert (row.outcome is not None) == (row.status is JobStatus.ENDING)
    assert row.outcome is None or row.outcome in FINAL_STATUSES | {JobStatus.QUEUED}
    assert (row.finished_at is not None) == (row.status in FINAL_STATUSES)
    if row.status is JobStatus.RUNNING:
        assert row.started_at is not None
        assert row.ends_at is not None
    if row.status is JobStatus.QUEUED:
        assert (row.range_end, row.started_at, row.ends_at, row.exit_code) == (None, None, None, None)
        assert (row.reason.code is ReasonCode.REQUEUED) == (row.attempt > 0)
    assert row.attempt <= STARTS
    if row.ends_at is not None:
        assert row.range_end is not None
        assert row.started_at is not None
        assert row.ends_at <= row.range_end
        assert row.ends_at - row.started_at <= row.duration


def _check_step(before: Reservation, event: Event, after: Reservation, effects: tuple[object, ...]) -> None:
    done = kinds(effects)
    comes_back = isinstance(event, PodsGone) and before.outcome is JobStatus.QUEUED and before.started_at is None
    assert (after.status is JobStatus.QUEUED) if comes_back else _place(after.status) >= _place(before.status)
    # What ran never waits again.
    assert after.status is not JobStatus.QUEUED or before.started_at is None
    assert (AvoidNodes in done) == (after.outcome is JobStatus.QUEUED and before.outcome is None)
    if before.status in FINAL_STATUSES:
        assert (after, done) == (before, [])
    assert (after != before) == (Record in done)
    assert done.count(Record) <= 1
    assert (ReleaseGpus in done) == (before.status is JobStatus.ENDING and isinstance(event, PodsGone))
    assert (DeletePods in done) == (before.status is not JobStatus.ENDING and after.status is JobStatus.ENDING)
    assert SetRangeEnd in done or comes_back or before.range_end == after.range_end
    assert all(effect.to == after.range_end for effect in effects if isinstance(effect, SetRangeEnd))
    if not isinstance(event, ExtendRequested):
        assert after.duration == before.duration
        # An end never slips by itself: only somebody who asks moves it away.
        if before.range_end is not None and after.range_end is not None:
            assert after.range_end <= before.range_end
        if before.ends_at is not None and not comes_back:
            assert after.ends_at == before.ends_at
    if (after.status in FINAL_STATUSES) != (before.status in FINAL_STATUSES):
        assert WakePlanner in done


@examples(1000)
@given(st.lists(st.tuples(EVENTS, st.integers(0, 2000), st.booleans()), max_size=25))
def test_any_order_of_events_is_a_legal_life(events: list[tuple[Event | Allocated, int, bool]]) -> None:
    row, now = queued(), T0
    deleted = released = 0
    for event, seconds, twice in events:
        now += timedelta(seconds=seconds)
        if isinstance(event, Allocated):
            row = starting(row, now) if row.status is JobStatus.QUEUED else row
            continue
        for _ in range(1 + twice):
            before = row
            try:
                row, effects = transition(before, event, now)
            except TYPED:
                assert isinstance(event, CancelRequested | ExtendRequested)
                continue
            _check_step(before, event, row, effects)
            _check_state(row)
            deleted += kinds(effects).count(DeletePods)
            released += kinds(effects).count(ReleaseGpus)
            # Each attempt is ended and given back once.
            assert released <= deleted <= row.attempt
            assert released == row.attempt - (row.status in LIVE_STATUSES)
        if twice and not isinstance(event, ExtendRequested):
            assert decide_quietly(row, event, now) is None


def decide_quietly(row: Reservation, event: Event, now: datetime) -> DecidedChange | None:
    """What an event said once more does; a refusal does nothing."""
    try:
        return decide(row, event, now)
    except TYPED:
        return None


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

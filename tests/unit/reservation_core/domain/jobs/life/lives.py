"""A job at each stage of its life, and all that may happen to it."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from reservation_core.domain.changes import (
    CancelRequested,
    DependenciesMet,
    DependencyFailed,
    EndReached,
    Event,
    ExtendRequested,
    NodeFenced,
    PodsFinished,
    PodsGone,
    PodsLost,
    PodsRunning,
    StartDelayed,
    StartFailed,
    StartRefused,
    StartTimedOut,
    WarningDue,
)
from reservation_core.domain.errors import AlreadyFinalError, LimitExceededError, NotExtendableError
from reservation_core.domain.jobs.lifecycle import transition
from reservation_core.domain.model import PodWorkload, Reason, Reservation
from reservation_core.domain.statuses import JobStatus, ReasonCode, ReservationKind

T0 = datetime(2030, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
ALLOWANCE = timedelta(minutes=2)
REFUSED = Reason(ReasonCode.START_FAILED, "The image does not exist.")
NO_IMAGE = Reason(ReasonCode.IMAGE_PULL_FAILED, "The image can't be pulled.")
STARTS = 3
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

"""What becomes of a job that waits for other jobs, as these start and end."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from reservation_core.domain.changes import Decision, DependenciesMet, DependencyFailed, Record, WakePlanner
from reservation_core.domain.event_kinds import JobEventKind
from reservation_core.domain.jobs.asked_dependencies import DependencyState, DependencyWhen
from reservation_core.domain.model import Reason, Reservation
from reservation_core.domain.statuses import FINAL_STATUSES, JobStatus, ReasonCode

RELEASED = Reason(ReasonCode.SUBMITTED, "It no longer waits for other jobs, and will be planned in a moment.")

UNKNOWN_START = "Its start is not known yet."


def kept_start(gpus: int) -> str:
    """What a waiting job with a slot is told beside its estimated start."""
    return f"{'GPUs' if gpus else 'CPUs and memory'} are kept for the estimated start; it may start sooner."


@dataclass(frozen=True, slots=True)
class KnownDependency:
    """A dependency with the status of the job that is waited for, and whether that job has ever started.

    `met_by` is when it is met at the latest: by the other's GPUs or slot. None where that is not known.
    """

    job: str
    when: DependencyWhen
    status: JobStatus
    started: bool
    met_by: datetime | None = None

    @property
    def state(self) -> DependencyState:
        is_over = self.status in FINAL_STATUSES
        match self.when:
            case DependencyWhen.SUCCEEDED:
                is_met = self.status is JobStatus.SUCCEEDED
            case DependencyWhen.ENDED:
                is_met = is_over
            case DependencyWhen.FAILED:
                is_met = is_over and self.status is not JobStatus.SUCCEEDED
            case DependencyWhen.STARTED:
                is_met = self.started
            case _:
                assert_never(self.when)
        if is_met:
            return DependencyState.MET
        return DependencyState.IMPOSSIBLE if is_over else DependencyState.OPEN


def settle(dependencies: Sequence[KnownDependency]) -> DependenciesMet | DependencyFailed | None:
    """What happens to a job that waits for these; None while it goes on waiting."""
    for dependency in dependencies:
        if dependency.state is DependencyState.IMPOSSIBLE:
            return DependencyFailed(_never(dependency))
    if all(dependency.state is DependencyState.MET for dependency in dependencies):
        return DependenciesMet()
    return None


def waiting_reason(dependencies: Sequence[KnownDependency], start: str = UNKNOWN_START) -> Reason:
    """Why a job is held that waits for these, at least one, with a sentence about its start.

    It names the one that decides, see `last_first`.
    """
    gone = next((one for one in dependencies if one.state is DependencyState.IMPOSSIBLE), None)
    if gone is not None:
        detail = f"{gone.job} {_ended(gone.status)}, so this job can never start. It is cancelled in a moment."
        return Reason(ReasonCode.WAITING_FOR_JOBS, detail)
    left = still_open(last_first(dependencies)) or dependencies
    first, others = left[0], len(left) - 1
    more = "" if not others else " and for 1 other job" if others == 1 else f" and for {others} other jobs"
    detail = f"It waits for {first.job} to {_verb(first.when)}{more}. {start}".rstrip()
    return Reason(ReasonCode.WAITING_FOR_JOBS, detail)


def last_first(dependencies: Sequence[KnownDependency]) -> tuple[KnownDependency, ...]:
    """The same, beginning with the open ones: first those of which no end is known, then those that are met last."""
    open_ones = still_open(dependencies)
    unknown = [one for one in open_ones if one.met_by is None]
    known = [(one.met_by, one) for one in open_ones if one.met_by is not None]
    known.sort(key=lambda known_end: known_end[0], reverse=True)
    others = (one for one in dependencies if one.state is not DependencyState.OPEN)
    return (*unknown, *(one for _, one in known), *others)


def still_open(dependencies: Sequence[KnownDependency]) -> list[KnownDependency]:
    """Those that a job still waits for."""
    return [dependency for dependency in dependencies if dependency.state is DependencyState.OPEN]


def released(reservation: Reservation) -> Decision:
    """Let the planner plan a held job."""
    if not _is_held(reservation):
        return reservation, ()
    held = reservation.array is not None  # the planner never plans an array; its elements are made from now on
    return replace(reservation, held=held, reason=RELEASED), (WakePlanner(), Record(JobEventKind.DEPENDENCIES_MET))


def given_up(reservation: Reservation, event: DependencyFailed, now: datetime) -> Decision:
    """End a held job that can't start any more."""
    if not _is_held(reservation):
        return reservation, ()
    after = replace(reservation, status=JobStatus.CANCELLED, reason=event.reason, finished_at=now)
    return after, (WakePlanner(), Record(JobEventKind.CANCELLED))


def _is_held(reservation: Reservation) -> bool:
    is_held = reservation.status is JobStatus.QUEUED and reservation.held is True
    return is_held and (reservation.array is None or reservation.reason.code is ReasonCode.WAITING_FOR_JOBS)


def _never(dependency: KnownDependency) -> Reason:
    job = dependency.job
    detail = f"It waited for {job} to {_verb(dependency.when)}, but {job} {_ended(dependency.status)}."
    detail += f" Submit this job again, without {job} or after a job that replaces it."
    return Reason(ReasonCode.DEPENDENCY_FAILED, detail)


def _ended(status: JobStatus) -> str:
    return "was cancelled" if status is JobStatus.CANCELLED else f"has {status.value}"


def _verb(when: DependencyWhen) -> str:
    match when:
        case DependencyWhen.SUCCEEDED:
            return "succeed"
        case DependencyWhen.ENDED:
            return "end"
        case DependencyWhen.FAILED:
            return "fail"
        case DependencyWhen.STARTED:
            return "start"
        case _:
            assert_never(when)

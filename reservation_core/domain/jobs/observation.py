"""What an observation of one pod means for its reservation.

Some observations need all pods of the reservation: whether a gang runs as a whole, and whether a missing pod is gone.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import assert_never

from reservation_core.domain.changes import (
    Event,
    PodsFinished,
    PodsGone,
    PodsLost,
    PodsRunning,
    StartDelayed,
    StartFailed,
    StartRefused,
)
from reservation_core.domain.jobs.starts import HOPELESS_STARTS, MAY_START_ELSEWHERE, TAKEN_AWAY, never_started
from reservation_core.domain.model import PodPhase, PodStatus, Reason, Reservation
from reservation_core.domain.statuses import LIVE_STATUSES, JobStatus, ReasonCode

LOST_DETAIL = "is gone, though no one asked for its end. Submit the job again."


def split_observation(status: PodStatus) -> list[PodStatus]:
    """Split a short pod's observation: it may be seen only when finished or gone, and it ran before that."""
    if status.phase is PodPhase.GONE and status.exit_code is not None:
        return [*split_observation(replace(status, phase=PodPhase.FINISHED)), status]
    failed_to_start = status.reason is not None and status.reason.code is ReasonCode.START_FAILED
    if status.phase is not PodPhase.FINISHED or status.started_at is None or failed_to_start:
        return [status]
    running = PodStatus(status.name, PodPhase.RUNNING, started_at=status.started_at, holding=status.holding)
    return [running, status]


def needs_all_pods(row: Reservation, status: PodStatus) -> bool:
    """Whether `event_of` needs all pods of this reservation."""
    match status.phase:
        case PodPhase.PENDING:
            return False
        case PodPhase.RUNNING:
            starts = row.status is JobStatus.STARTING or row.outcome is JobStatus.QUEUED
            return row.nodes > 1 and starts and not _is_taken_away(status)
        case PodPhase.FINISHED:
            return row.nodes > 1 and (row.status is JobStatus.ENDING or not _failed(status))
        case PodPhase.GONE:
            return row.status in LIVE_STATUSES
        case _:
            assert_never(status.phase)


def event_of(
    row: Reservation, status: PodStatus, pods: Sequence[PodStatus], now: datetime, max_starts: int
) -> Event | None:
    """The event that an observation means, if any. `pods` are the reservation's, where `needs_all_pods` requires them.

    A `GONE` pod was searched for under the pod lock, so that no create was in flight.
    """
    own = [pod for pod in pods if pod.name.attempt == row.attempt]
    match status.phase:
        case PodPhase.PENDING:
            return _taken_away(row, status, max_starts) or _delayed(row, status, max_starts)
        case PodPhase.RUNNING:
            return _taken_away(row, status, max_starts) or _running(row, status, own, now)
        case PodPhase.FINISHED:
            if row.status is JobStatus.STARTING and status.reason is not None and never_started(status):
                return StartFailed(_of_pod(row, status, status.reason), max_starts)
            return _finished(row, status, own, now)
        case PodPhase.GONE:
            return _gone(row, status, pods, max_starts)
        case _:
            assert_never(status.phase)


def _delayed(row: Reservation, status: PodStatus, max_starts: int) -> Event | None:
    if status.reason is None:
        return None
    if status.hopeless_here:
        return StartFailed(_of_pod(row, status, status.reason), min(max_starts, HOPELESS_STARTS))
    return StartRefused(status.reason) if status.hopeless else StartDelayed(status.reason)


def _is_taken_away(status: PodStatus) -> bool:
    return status.reason is not None and status.reason.code in TAKEN_AWAY


def _taken_away(row: Reservation, status: PodStatus, max_starts: int) -> Event | None:
    """The event of an unfinished pod that another party is ending: we never end a pod that should run."""
    if status.reason is None or not _is_taken_away(status):
        return None
    reason = _of_pod(row, status, status.reason)
    if row.status is JobStatus.STARTING and status.started_at is None and reason.code in MAY_START_ELSEWHERE:
        return StartFailed(reason, max_starts)
    return PodsLost(reason.detail, reason.code)


def _of_pod(row: Reservation, status: PodStatus, reason: Reason) -> Reason:
    """Name the pod in the reason if it is one of a gang."""
    return reason if row.nodes == 1 else Reason(reason.code, f"Pod {status.name}: {reason.detail}")


def _running(row: Reservation, status: PodStatus, own: Sequence[PodStatus], now: datetime) -> Event | None:
    if row.status is not JobStatus.STARTING and row.outcome is not JobStatus.QUEUED:
        return None
    at = began(status) or now
    if row.nodes > 1:
        running = [pod for pod in own if pod.phase in (PodPhase.RUNNING, PodPhase.FINISHED)]
        if len(running) < row.nodes:
            return None
        at = max((start for pod in running if (start := began(pod)) is not None), default=at)
    return PodsRunning(at)


def began(status: PodStatus) -> datetime | None:
    """When a pod began to run: not before its GPUs' range, whatever its node's clock says."""
    if status.started_at is None or status.holding is None:
        return status.started_at
    return max(status.started_at, status.holding.starts_at)


def _failed(status: PodStatus) -> bool:
    return status.exit_code != 0 or status.reason is not None


def _finished(row: Reservation, status: PodStatus, own: Sequence[PodStatus], now: datetime) -> Event | None:
    ended = [status]
    if row.nodes > 1 and not _failed(status):
        # A gang succeeds when its last pod does; one failure ends it at once.
        ended = [pod for pod in own if pod.phase is PodPhase.FINISHED]
        if len(ended) < row.nodes:
            return None
    return PodsFinished(
        at=max(pod.finished_at or now for pod in ended),
        exit_code=status.exit_code,
        started_at=began(status),
        reason=None if status.reason is None else _of_pod(row, status, status.reason),
        pod=None if row.nodes == 1 else str(status.name),
        ran=max(
            (pod.finished_at - pod.started_at for pod in ended if pod.finished_at and pod.started_at), default=None
        ),
    )


def _gone(row: Reservation, status: PodStatus, pods: Sequence[PodStatus], max_starts: int) -> Event | None:
    if row.status is JobStatus.ENDING:
        return None if pods else PodsGone()
    if row.status in (JobStatus.STARTING, JobStatus.RUNNING) and status.name not in {pod.name for pod in pods}:
        subject = "The job's pod" if row.nodes == 1 else f"Pod {status.name} of the job"
        return _taken_away(row, status, max_starts) or PodsLost(f"{subject} {LOST_DETAIL}")
    return None


def ended_in_time(reservation: Reservation, event: PodsFinished) -> bool:
    """Whether pods ended before their time. Some clusters report whole seconds: then an end within the same one is not.

    The run time is more reliable than the end, since the node's clock may differ from ours and ours may have been set
    meanwhile. But a pod that a signal ended after its time was ended by us, however short it ran.
    """
    if reservation.ends_at is None:
        return False
    end = reservation.ends_at if event.at.microsecond else reservation.ends_at.replace(microsecond=0)
    if event.ran is None or reservation.started_at is None:
        return event.at < end
    cut = timedelta(0) if event.ran.microseconds else timedelta(microseconds=999_999)
    by_signal = event.exit_code is not None and event.exit_code > 128
    return event.ran + cut < reservation.ends_at - reservation.started_at and (event.at < end or not by_signal)


def outcome_of(event: PodsFinished) -> tuple[JobStatus, Reason]:
    command = "The command" if event.pod is None else f"The command of pod {event.pod}"
    if event.reason is not None:
        expired = event.reason.code is ReasonCode.DURATION_REACHED
        return (JobStatus.EXPIRED if expired else JobStatus.FAILED), event.reason
    if event.exit_code is None:
        detail = "The pod has ended, but its result is unknown. Check its log, then submit the job again."
        return JobStatus.FAILED, Reason(ReasonCode.POD_LOST, detail)
    if event.exit_code == 0:
        return JobStatus.SUCCEEDED, Reason(ReasonCode.COMPLETED, "The command ended with exit code 0.")
    if event.exit_code > 128:
        detail = f"{command} was ended by signal {event.exit_code - 128}; its log may say why."
        return JobStatus.FAILED, Reason(ReasonCode.KILLED_BY_SIGNAL, detail)
    detail = f"{command} ended with exit code {event.exit_code}; its log may say why."
    return JobStatus.FAILED, Reason(ReasonCode.COMMAND_FAILED, detail)

"""Following pods: what the cluster reports becomes lifecycle events, many in one transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

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
from reservation_core.domain.lifecycle import decide
from reservation_core.domain.model import LIVE_STATUSES, JobStatus, PodPhase, PodStatus, Reason, ReasonCode, Reservation
from reservation_core.domain.pods import pod_names
from reservation_core.domain.starts import MAY_START_ELSEWHERE, TAKEN_AWAY, never_started
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import Cluster
from reservation_core.ports.transactions import UnitOfWork, UnitOfWorkFactory
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.changing import carry_out

LOST_DETAIL = "is gone and nobody asked for its end. Submit the job again."


async def observe(
    uow_factory: UnitOfWorkFactory, cluster: Cluster, statuses: Sequence[PodStatus], clock: Clock, max_starts: int
) -> list[PodStatus]:
    """Apply observations, in the order they were made. Returns those that have to be looked at again soon.

    An observation of a former attempt, or one that says nothing new, changes nothing. `max_starts` is how often a
    reservation whose pods can't start is tried.
    """
    by_id: dict[str, list[PodStatus]] = {}
    for status in statuses:
        if status.phase is PodPhase.PENDING and status.reason is None:
            continue  # as every pod begins: nobody has to learn it
        by_id.setdefault(status.name.reservation_id, []).extend(_told_whole(status))
    if not by_id:
        return []
    again: list[PodStatus] = []
    async with uow_factory() as uow:
        rows = await uow.reservations.lock(sorted(by_id))
        gone = [i for i, seen in by_id.items() if i in rows and any(s.phase is PodPhase.GONE for s in seen)]
        locked = await uow.try_pod_locks(gone) if gone else set()
        await _let_go(uow, cluster, rows, statuses)
        while by_id:
            changes = []
            for reservation_id in list(by_id):
                status = by_id[reservation_id].pop(0)
                if not by_id[reservation_id]:
                    del by_id[reservation_id]
                row = rows.get(reservation_id)
                if row is None or status.name.attempt != row.attempt:
                    continue
                if status.phase is PodPhase.GONE and reservation_id not in locked:
                    again.append(status)
                    continue
                event = await _event(cluster, row, status, clock, max_starts)
                change = None if event is None else decide(row, event, clock.now())
                if change is not None:
                    changes.append(change)
                    rows[reservation_id] = replace(change.after, version=change.before.version + 1)
            await carry_out(uow, changes)
    return again


async def _let_go(
    uow: UnitOfWork, cluster: Cluster, rows: Mapping[str, Reservation], statuses: Sequence[PodStatus]
) -> None:
    """Pods that were told to end and have: the delete is said again, which lets go of them and keeps their logs."""
    over: set[str] = set()
    for status in statuses:
        row = rows.get(status.name.reservation_id)
        if row is None or row.status is not JobStatus.ENDING or status.phase is not PodPhase.FINISHED:
            continue
        if status.name.attempt == row.attempt and row.id not in over:
            pods = await cluster.find_pods(row.id, pod_names(row)) if row.nodes > 1 else [status]
            if all(pod.phase is PodPhase.FINISHED for pod in pods):
                over.add(row.id)
    if over and await uow.reservations.resend(sorted(over)):
        uow.wake(Channel.POD_OPERATIONS)


def _told_whole(status: PodStatus) -> list[PodStatus]:
    """A short pod may be seen only when it has finished, or is gone; that it ran before is part of the truth."""
    if status.phase is PodPhase.GONE and status.exit_code is not None:
        return [*_told_whole(replace(status, phase=PodPhase.FINISHED)), status]
    failed_to_start = status.reason is not None and status.reason.code is ReasonCode.START_FAILED
    if status.phase is not PodPhase.FINISHED or status.started_at is None or failed_to_start:
        return [status]
    return [PodStatus(status.name, PodPhase.RUNNING, started_at=status.started_at), status]


async def _event(cluster: Cluster, row: Reservation, status: PodStatus, clock: Clock, max_starts: int) -> Event | None:
    """What an observation of one pod means for its reservation."""
    match status.phase:
        case PodPhase.PENDING:
            return _taken_away(row, status, max_starts) or _delayed(status)
        case PodPhase.RUNNING:
            return _taken_away(row, status, max_starts) or await _running(cluster, row, status, clock)
        case PodPhase.FINISHED:
            if row.status is JobStatus.STARTING and status.reason is not None and never_started(status):
                return StartFailed(_of_pod(row, status, status.reason), max_starts)
            return await _finished(cluster, row, status, clock)
        case PodPhase.GONE:
            return await _gone(cluster, row, status, max_starts)


def _delayed(status: PodStatus) -> Event | None:
    if status.reason is None:
        return None
    return StartRefused(status.reason) if status.hopeless else StartDelayed(status.reason)


def _taken_away(row: Reservation, status: PodStatus, max_starts: int) -> Event | None:
    """A pod that is not over, and that somebody else is ending: nobody of us asks for the end of what should run."""
    reason = status.reason
    if reason is None or reason.code not in TAKEN_AWAY:
        return None
    reason = _of_pod(row, status, reason)
    if row.status is JobStatus.STARTING and status.started_at is None and reason.code in MAY_START_ELSEWHERE:
        return StartFailed(reason, max_starts)
    return PodsLost(reason.detail, reason.code)


def _of_pod(row: Reservation, status: PodStatus, reason: Reason) -> Reason:
    """Of a gang, it is said which pod it was."""
    return reason if row.nodes == 1 else Reason(reason.code, f"Pod {status.name}: {reason.detail}")


async def _running(cluster: Cluster, row: Reservation, status: PodStatus, clock: Clock) -> Event | None:
    if row.status is not JobStatus.STARTING and row.outcome is not JobStatus.QUEUED:
        return None
    at = status.started_at or clock.now()
    if row.nodes > 1:
        pods = [p for p in await cluster.find_pods(row.id, pod_names(row)) if p.name.attempt == row.attempt]
        begun = [p for p in pods if p.phase in (PodPhase.RUNNING, PodPhase.FINISHED)]
        if len(begun) < row.nodes:
            return None
        at = max((p.started_at for p in begun if p.started_at is not None), default=at)
    return PodsRunning(at)


async def _finished(cluster: Cluster, row: Reservation, status: PodStatus, clock: Clock) -> Event | None:
    failed = status.exit_code != 0 or status.reason is not None
    if row.nodes > 1 and not failed and row.status is not JobStatus.ENDING:
        # A gang has succeeded when its last pod has; one failure ends it at once.
        pods = [p for p in await cluster.find_pods(row.id, pod_names(row)) if p.name.attempt == row.attempt]
        if len([p for p in pods if p.phase is PodPhase.FINISHED]) < row.nodes:
            return None
    return PodsFinished(
        at=status.finished_at or clock.now(),
        exit_code=status.exit_code,
        started_at=status.started_at,
        reason=None if status.reason is None else _of_pod(row, status, status.reason),
        pod=None if row.nodes == 1 else str(status.name),
    )


async def _gone(cluster: Cluster, row: Reservation, status: PodStatus, max_starts: int) -> Event | None:
    """Under the pod lock, so that no create is under way: look whether it is really true."""
    if row.status not in LIVE_STATUSES:
        return None
    pods = await cluster.find_pods(row.id, pod_names(row))
    if row.status is JobStatus.ENDING:
        return None if pods else PodsGone()
    if row.status in (JobStatus.STARTING, JobStatus.RUNNING) and status.name not in {p.name for p in pods}:
        subject = "The job's pod" if row.nodes == 1 else f"Pod {status.name} of the job"
        return _taken_away(row, status, max_starts) or PodsLost(f"{subject} {LOST_DETAIL}")
    return None

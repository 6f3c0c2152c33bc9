"""Following pods: what the cluster reports becomes lifecycle events, many in one transaction."""

from collections.abc import Sequence
from dataclasses import replace

from reservation_core.domain.changes import Event, PodsFinished, PodsGone, PodsLost, PodsRunning
from reservation_core.domain.lifecycle import decide
from reservation_core.domain.model import JobStatus, PodPhase, PodStatus, ReasonCode, Reservation
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import Cluster
from reservation_core.ports.transactions import UnitOfWork, UnitOfWorkFactory
from reservation_core.usecases.changing import carry_out

LOST_DETAIL = "The job's pod is gone and nobody asked for its end. Submit the job again."


async def observe(
    uow_factory: UnitOfWorkFactory, cluster: Cluster, statuses: Sequence[PodStatus], clock: Clock
) -> list[PodStatus]:
    """Apply observations, in the order they were made. Returns those that have to be looked at again soon.

    An observation of a former attempt, or one that says nothing new, changes nothing.
    """
    by_id: dict[str, list[PodStatus]] = {}
    for status in statuses:
        by_id.setdefault(status.name.reservation_id, []).extend(_told_whole(status))
    if not by_id:
        return []
    again: list[PodStatus] = []
    async with uow_factory() as uow:
        rows = await uow.reservations.lock(sorted(by_id))
        gone = [i for i, seen in by_id.items() if i in rows and any(s.phase is PodPhase.GONE for s in seen)]
        locked = await uow.try_pod_locks(gone) if gone else set()
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
                event = await _event(cluster, row, status, clock)
                change = None if event is None else decide(row, event, clock.now())
                if change is not None:
                    changes.append(change)
                    rows[reservation_id] = replace(change.after, version=change.before.version + 1)
            await carry_out(uow, changes)
    return again


def _told_whole(status: PodStatus) -> list[PodStatus]:
    """A short pod may be seen only when it has finished; that it ran before is part of the truth."""
    failed_to_start = status.reason is not None and status.reason.code is ReasonCode.START_FAILED
    if status.phase is not PodPhase.FINISHED or status.started_at is None or failed_to_start:
        return [status]
    return [PodStatus(status.name, PodPhase.RUNNING, started_at=status.started_at), status]


async def _event(cluster: Cluster, row: Reservation, status: PodStatus, clock: Clock) -> Event | None:
    """What an observation of one pod means for its reservation."""
    match status.phase:
        case PodPhase.PENDING:
            return None
        case PodPhase.RUNNING:
            return await _running(cluster, row, status, clock)
        case PodPhase.FINISHED:
            return await _finished(cluster, row, status, clock)
        case PodPhase.GONE:
            return await _gone(cluster, row, status)


async def _running(cluster: Cluster, row: Reservation, status: PodStatus, clock: Clock) -> Event | None:
    if row.status is not JobStatus.STARTING:
        return None
    at = status.started_at or clock.now()
    if row.nodes > 1:
        pods = [p for p in await cluster.find_pods(row.id) if p.name.attempt == row.attempt]
        begun = [p for p in pods if p.phase in (PodPhase.RUNNING, PodPhase.FINISHED)]
        if len(begun) < row.nodes:
            return None
        at = max((p.started_at for p in begun if p.started_at is not None), default=at)
    return PodsRunning(at)


async def _finished(cluster: Cluster, row: Reservation, status: PodStatus, clock: Clock) -> Event | None:
    failed = status.exit_code != 0 or status.reason is not None
    if row.nodes > 1 and not failed and row.status is not JobStatus.ENDING:
        # A gang has succeeded when its last pod has; one failure ends it at once.
        pods = [p for p in await cluster.find_pods(row.id) if p.name.attempt == row.attempt]
        if len([p for p in pods if p.phase is PodPhase.FINISHED]) < row.nodes:
            return None
    return PodsFinished(
        at=status.finished_at or clock.now(),
        exit_code=status.exit_code,
        started_at=status.started_at,
        reason=status.reason,
    )


async def _gone(cluster: Cluster, row: Reservation, status: PodStatus) -> Event | None:
    """Under the pod lock, so that no create is under way: look whether it is really true."""
    pods = await cluster.find_pods(row.id)
    if row.status is JobStatus.ENDING:
        return None if pods else PodsGone()
    if row.status in (JobStatus.STARTING, JobStatus.RUNNING) and status.name not in {p.name for p in pods}:
        return PodsLost(LOST_DETAIL)
    return None


async def disown(uow: UnitOfWork, status: PodStatus, clock: Clock) -> bool:
    """Record that no reservation accounts for a pod; false when it turns out that one does."""
    reservation_id = status.name.reservation_id
    await uow.hold_pod_lock(reservation_id)
    row = (await uow.reservations.get([reservation_id])).get(reservation_id)
    live = row is not None and row.status in (JobStatus.STARTING, JobStatus.RUNNING, JobStatus.ENDING)
    if live and row is not None and row.attempt == status.name.attempt:
        return False
    await uow.events.append(actor="system", kind="orphan_removed", at=clock.now(), subject=str(status.name))
    return True

"""Observe pods: apply the cluster's reports as lifecycle events, many in one transaction.

For reports that are not conclusive by themselves the cluster is asked, between two transactions: its answer is only
applied to rows that have not changed.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.contracts.queue_messages import PodOperation
from reservation_core.domain.changes import DecidedChange, PodsRunning
from reservation_core.domain.jobs.lifecycle import decide
from reservation_core.domain.jobs.observation import event_of, needs_all_pods, split_observation
from reservation_core.domain.model import PodPhase, PodStatus, Reservation
from reservation_core.domain.pods.pod_environment import pod_names
from reservation_core.domain.statuses import JobStatus
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import Cluster, ClusterUnavailableError
from reservation_core.ports.queues import QueueName
from reservation_core.ports.traces import Traces
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.carry_out import carry_out
from reservation_core.usecases.running.job_spans import add_starts

_LOOKS_AT_ONCE = 8


class UnobservedPodsError(ClusterUnavailableError):
    """The cluster could not be asked about `statuses`, which must be observed again; all others were applied."""

    def __init__(self, cause: ClusterUnavailableError, statuses: Sequence[PodStatus]) -> None:
        super().__init__(str(cause))
        self.statuses = statuses


@dataclass(slots=True)
class _Report:
    """Unapplied statuses of one reservation; after a look at the cluster, its row then and its pods."""

    statuses: list[PodStatus]
    row: Reservation | None = None
    pods: Sequence[PodStatus] | None = None
    unavailable: ClusterUnavailableError | None = field(default=None, compare=False)

    @property
    def says_gone(self) -> bool:
        return any(status.phase is PodPhase.GONE for status in self.statuses)


@dataclass(frozen=True, slots=True)
class _Rules:
    """See `observe`."""

    max_starts: int
    turnaround: timedelta
    traces: Traces | None


@dataclass(slots=True)
class _Applied:
    """Reports that need a look at the cluster, and jobs with a trace that began to run, with when they got GPUs."""

    left: dict[str, _Report]
    started: list[tuple[Reservation, datetime]]


async def observe(
    uow_factory: UnitOfWorkFactory,
    cluster: Cluster,
    statuses: Sequence[PodStatus],
    clock: Clock,
    max_starts: int,
    turnaround: timedelta = timedelta(0),
    traces: Traces | None = None,
) -> list[PodStatus]:
    """Apply observations in their order. Returns those that must be observed again soon.

    Observations of a former attempt, or without news, change nothing. `max_starts` is the number of start attempts,
    `turnaround` how long pods may need to end. Starts are added to `traces`. Raises UnobservedPodsError.
    """
    rules = _Rules(max_starts, turnaround, traces)
    reports: dict[str, _Report] = {}
    for status in statuses:
        if status.phase is PodPhase.PENDING and status.reason is None:
            continue  # the state in which every pod begins
        reports.setdefault(status.name.reservation_id, _Report([])).statuses.extend(split_observation(status))
    if not reports:
        return []
    async with uow_factory() as uow:
        applied = await _apply(uow, reports, clock, rules)
    add_starts(traces, applied.started)  # once they are committed
    return await _look_and_apply(uow_factory, cluster, applied.left, clock, rules) if applied.left else []


async def _apply(uow: UnitOfWork, reports: Mapping[str, _Report], clock: Clock, rules: _Rules) -> _Applied:
    """Apply conclusive reports; what is left needs a look at the cluster, or a newer one."""
    rows = await uow.reservations.lock(sorted(reports))
    left: dict[str, _Report] = {}
    started: list[tuple[Reservation, datetime]] = []
    to_end = [(row, report) for i, report in reports.items() if (row := rows.get(i)) and row.status is JobStatus.ENDING]
    over = [row.id for row, report in to_end if _is_over(row, report)]
    late = [row for row, report in to_end if _came_late(row, report)]
    going: dict[str, _Report] = {}
    for reservation_id, report in reports.items():
        row = rows.get(reservation_id)
        if row is None:
            continue
        if report.row is not None and (report.row.version, report.row.attempt) != (row.version, row.attempt):
            left[reservation_id] = report
        else:
            going[reservation_id] = report
    while going:
        changes = []
        for reservation_id, report in [*going.items()]:
            row = rows[reservation_id]
            status = report.statuses[0]
            if status.name.attempt == row.attempt:
                if report.pods is None and needs_all_pods(row, status):
                    # Later statuses wait for this one.
                    left[reservation_id] = _Report(report.statuses, row)
                    del going[reservation_id]
                    continue
                event = event_of(row, status, report.pods or (), clock.now(), rules.max_starts)
                if isinstance(event, PodsRunning):
                    event = replace(event, turnaround=rules.turnaround)
                change = None if event is None else decide(row, event, clock.now())
                if change is not None:
                    changes.append(change)
                    rows[reservation_id] = replace(change.after, version=change.before.version + 1)
            del report.statuses[0]
            if not report.statuses:
                del going[reservation_id]
        await carry_out(uow, changes)
        if rules.traces is not None:
            started += await _traced_starts(uow, changes)
    await _delete_again(uow, over, late)
    return _Applied(left, started)


async def _traced_starts(uow: UnitOfWork, changes: Iterable[DecidedChange]) -> list[tuple[Reservation, datetime]]:
    begun = [
        change.after
        for change in changes
        if change.after.trace is not None and change.before.started_at is None and change.after.started_at is not None
    ]
    gpus = await uow.reservations.allocations([row.id for row in begun]) if begun else {}
    return [(row, gpus[row.id][0].starts_at) for row in begun if gpus.get(row.id)]


async def _delete_again(uow: UnitOfWork, over: Sequence[str], late: Sequence[Reservation]) -> None:
    """Send delete messages, for ended pods, whose logs are then kept, and for pods that came late."""
    if over and await uow.reservations.resend(sorted(over)):
        uow.wake(Channel.POD_OPERATIONS)
    if late:
        # The queued delete message for them is retried only in some seconds; this one acts now.
        deletes = [PodOperation(op="delete", id=row.id, attempt=row.attempt).model_dump() for row in late]
        await uow.queue.send(QueueName.POD_OPERATIONS, deletes)
        uow.wake(Channel.POD_OPERATIONS)


def _is_over(row: Reservation, report: _Report) -> bool:
    """Whether all pods have finished, so that only their removal is missing to the end."""
    if report.says_gone:
        return False
    if not any(s.phase is PodPhase.FINISHED and s.name.attempt == row.attempt for s in report.statuses):
        return False
    return row.nodes == 1 if report.pods is None else all(pod.phase is PodPhase.FINISHED for pod in report.pods)


def _came_late(row: Reservation, report: _Report) -> bool:
    """Whether an unanswered create was carried out after the end was decided, so that its pod still has to end."""
    return row.unsettled_until is not None and any(
        s.phase is PodPhase.RUNNING and s.reason is None and s.name.attempt == row.attempt for s in report.statuses
    )


async def _look_and_apply(
    uow_factory: UnitOfWorkFactory, cluster: Cluster, left: Mapping[str, _Report], clock: Clock, rules: _Rules
) -> list[PodStatus]:
    """Read the pods of these reservations and apply their reports; returns the statuses that are left.

    Pods that seem to be gone are read under their pod lock, as a list could miss a pending create.
    """
    gone = [reservation_id for reservation_id, report in left.items() if report.says_gone]
    async with uow_factory.hold_pods(gone) as held:
        free = {i: report for i, report in left.items() if not report.says_gone or i in held.ids}
        turns = asyncio.Semaphore(_LOOKS_AT_ONCE)
        await asyncio.gather(*(_read_pods(cluster, report, turns) for report in free.values()))
        seen = {i: report for i, report in free.items() if report.pods is not None}
        again = [report for i, report in left.items() if i not in free]
        if seen:
            async with held.work() as uow:
                applied = await _apply(uow, seen, clock, rules)
            add_starts(rules.traces, applied.started)
            again += applied.left.values()
    unseen = [report for report in free.values() if report.unavailable is not None]
    if unseen and unseen[0].unavailable is not None:
        raise UnobservedPodsError(unseen[0].unavailable, _statuses([*again, *unseen]))
    return _statuses(again)


async def _read_pods(cluster: Cluster, report: _Report, turns: asyncio.Semaphore) -> None:
    row = report.row
    if row is None:
        return
    async with turns:
        try:
            report.pods = await cluster.find_pods(row.id, pod_names(row))
        except ClusterUnavailableError as unavailable:
            report.unavailable = unavailable


def _statuses(reports: Iterable[_Report]) -> list[PodStatus]:
    return [status for report in reports for status in report.statuses]

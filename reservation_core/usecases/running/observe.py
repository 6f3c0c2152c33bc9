"""Following pods: what the cluster reports becomes lifecycle events, many in one transaction.

Most observations say all by themselves. For the rest the cluster is asked, between two transactions: what it answers is
only applied to rows that are still as they were before.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.contracts.queue_messages import PodOperation
from reservation_core.domain.changes import PodsRunning
from reservation_core.domain.jobs.lifecycle import decide
from reservation_core.domain.jobs.observation import event_of, needs_look, told_whole
from reservation_core.domain.model import JobStatus, PodPhase, PodStatus, Reservation
from reservation_core.domain.pods.pod_environment import pod_names
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import Cluster, ClusterUnavailableError
from reservation_core.ports.queues import QueueName
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.carry_out import carry_out

_LOOKS_AT_ONCE = 8


class NotLookedAtError(ClusterUnavailableError):
    """The cluster could not be asked about `statuses`, which are to be observed again; all else was applied."""

    def __init__(self, cause: ClusterUnavailableError, statuses: Sequence[PodStatus]) -> None:
        super().__init__(str(cause))
        self.statuses = statuses


@dataclass(slots=True)
class _Told:
    """What was told of one reservation and is not applied yet; once it was looked at, its row then and its pods."""

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


async def observe(
    uow_factory: UnitOfWorkFactory,
    cluster: Cluster,
    statuses: Sequence[PodStatus],
    clock: Clock,
    max_starts: int,
    turnaround: timedelta = timedelta(0),
) -> list[PodStatus]:
    """Apply observations, in the order they were made. Returns those that have to be looked at again soon.

    An observation of a former attempt, or one that says nothing new, changes nothing. `max_starts` is how often a
    reservation whose pods can't start is tried, `turnaround` how long its pods may need to go after its end. Raises
    NotLookedAtError.
    """
    rules = _Rules(max_starts, turnaround)
    told: dict[str, _Told] = {}
    for status in statuses:
        if status.phase is PodPhase.PENDING and status.reason is None:
            continue  # as every pod begins: nobody has to learn it
        told.setdefault(status.name.reservation_id, _Told([])).statuses.extend(told_whole(status))
    if not told:
        return []
    async with uow_factory() as uow:
        left = await _apply(uow, told, clock, rules)
    return await _look(uow_factory, cluster, left, clock, rules) if left else []


async def _apply(uow: UnitOfWork, told: Mapping[str, _Told], clock: Clock, rules: _Rules) -> dict[str, _Told]:
    """Apply what can be; what is left needs a look, or a newer one."""
    rows = await uow.reservations.lock(sorted(told))
    left: dict[str, _Told] = {}
    to_end = [(row, report) for i, report in told.items() if (row := rows.get(i)) and row.status is JobStatus.ENDING]
    over = [row.id for row, report in to_end if _is_over(row, report)]
    late = [row for row, report in to_end if _came_late(row, report)]
    going: dict[str, _Told] = {}
    for reservation_id, report in told.items():
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
                if report.pods is None and needs_look(row, status):
                    # And so all that was told after it waits.
                    left[reservation_id] = _Told(report.statuses, row)
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
    await _delete_again(uow, over, late)
    return left


async def _delete_again(uow: UnitOfWork, over: Sequence[str], late: Sequence[Reservation]) -> None:
    """Pods that have ended are let go of, and their logs kept; those that came late are told to end."""
    if over and await uow.reservations.resend(sorted(over)):
        uow.wake(Channel.POD_OPERATIONS)
    if late:
        # The delete that waits for them in the queue looks again in some seconds only: this one does now.
        deletes = [PodOperation(op="delete", id=row.id, attempt=row.attempt).model_dump() for row in late]
        await uow.queue.send(QueueName.POD_OPERATIONS, deletes)
        uow.wake(Channel.POD_OPERATIONS)


def _is_over(row: Reservation, told: _Told) -> bool:
    """Whether nothing but the removal of its finished pods is missing to its end, as far as was looked."""
    if told.says_gone:
        return False
    if not any(s.phase is PodPhase.FINISHED and s.name.attempt == row.attempt for s in told.statuses):
        return False
    return row.nodes == 1 if told.pods is None else all(pod.phase is PodPhase.FINISHED for pod in told.pods)


def _came_late(row: Reservation, told: _Told) -> bool:
    """Whether a create without an answer was carried out after the end was decided: nobody has ended that pod yet."""
    return row.unsettled_until is not None and any(
        s.phase is PodPhase.RUNNING and s.reason is None and s.name.attempt == row.attempt for s in told.statuses
    )


async def _look(
    uow_factory: UnitOfWorkFactory, cluster: Cluster, left: Mapping[str, _Told], clock: Clock, rules: _Rules
) -> list[PodStatus]:
    """Look at the pods of these reservations and apply what was told of them; answers what is left even then.

    What seems to be gone is looked for under its pod lock, when no create is under way that a list could miss.
    """
    gone = [reservation_id for reservation_id, report in left.items() if report.says_gone]
    async with uow_factory.hold_pods(gone) as held:
        free = {i: report for i, report in left.items() if not report.says_gone or i in held.ids}
        turns = asyncio.Semaphore(_LOOKS_AT_ONCE)
        await asyncio.gather(*(_look_at(cluster, report, turns) for report in free.values()))
        seen = {i: report for i, report in free.items() if report.pods is not None}
        again = [report for i, report in left.items() if i not in free]
        if seen:
            async with held.work() as uow:
                again += (await _apply(uow, seen, clock, rules)).values()
    unseen = [report for report in free.values() if report.unavailable is not None]
    if unseen and unseen[0].unavailable is not None:
        raise NotLookedAtError(unseen[0].unavailable, _statuses([*again, *unseen]))
    return _statuses(again)


async def _look_at(cluster: Cluster, told: _Told, turns: asyncio.Semaphore) -> None:
    row = told.row
    if row is None:
        return
    async with turns:
        try:
            told.pods = await cluster.find_pods(row.id, pod_names(row))
        except ClusterUnavailableError as unavailable:
            told.unavailable = unavailable


def _statuses(some: Iterable[_Told]) -> list[PodStatus]:
    return [status for report in some for status in report.statuses]

"""End due jobs, warn before, and repair stuck ones. Level-triggered: the next run makes up for a missed one.

The leading processor runs this as soon as a job is due, and `reservation_expiry` by a timer as a backup. Both may run
at the same time, since every row is decided under its lock.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.changes import EndReached, Event, LeftAlone, StartTimedOut, WarningDue
from reservation_core.domain.jobs.lifecycle import decide
from reservation_core.domain.jobs.repeated_asking import RepeatedEndRequests
from reservation_core.domain.model import PodPhase, PodStatus, Reservation
from reservation_core.domain.statuses import JobStatus
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import Cluster, ClusterUnavailableError
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.carry_out import carry_out

_BATCH = 500
Finder = Callable[[UnitOfWork, datetime], Awaitable[list[str]]]
EventOf = Callable[[Reservation, datetime], Event | None]


@dataclass(frozen=True, slots=True)
class RepairRules:
    """How long starts and ends may take, and the number of start attempts."""

    start_allowance: timedelta
    max_starts: int
    ending_patience: timedelta


@dataclass(frozen=True, slots=True)
class ExpiryRules:
    """When to warn (seconds before the end), how long starts and ends may take, and the number of start attempts."""

    warn_before_s: Sequence[int]
    start_allowance: timedelta
    max_starts: int
    ending_patience: timedelta

    @property
    def repair(self) -> RepairRules:
        return RepairRules(self.start_allowance, self.max_starts, self.ending_patience)


@dataclass(frozen=True, slots=True)
class EndReport:
    """The result of `end_due`; `next_end` is the end of the next running job, None without one."""

    ended: int
    warned: int
    next_end: datetime | None

    def __bool__(self) -> bool:
        return bool(self.ended or self.warned)


@dataclass(frozen=True, slots=True)
class RepairReport:
    """The result of a repair. `unknown`: late starts about which the cluster could not be asked."""

    timed_out: int
    unknown: int
    resent: int

    def __bool__(self) -> bool:
        return bool(self.timed_out or self.unknown or self.resent)


@dataclass(frozen=True, slots=True)
class ExpiryReport:
    """The result of a run. `unknown`: late starts about which the cluster could not be asked."""

    ended: int
    warned: int
    timed_out: int
    unknown: int
    resent: int


async def expire(
    uow_factory: UnitOfWorkFactory,
    cluster: Cluster,
    clock: Clock,
    rules: ExpiryRules,
    asked: RepeatedEndRequests | None = None,
) -> ExpiryReport:
    """End, warn and repair all due jobs once.

    A start is given up only if the cluster answers. Repeated callers pass the same `asked`, so that delete messages for
    pods that do not end are not repeated in every run.
    """
    asked = asked or RepeatedEndRequests(rules.ending_patience)
    ends = await end_due(uow_factory, clock, rules.warn_before_s)
    alone = await _each_batch(uow_factory, clock, _left_alone, lambda _row, _now: LeftAlone())
    repair = await repair_stuck(uow_factory, cluster, clock, rules.repair, asked)
    return ExpiryReport(ends.ended + alone, ends.warned, repair.timed_out, repair.unknown, repair.resent)


async def end_due(uow_factory: UnitOfWorkFactory, clock: Clock, warn_before_s: Sequence[int]) -> EndReport:
    """End due jobs, and warn jobs whose end is near (`warn_before_s`: seconds before it)."""
    async with uow_factory(one_statement=True) as uow:
        next_end = await uow.reservations.next_end()
    ahead = timedelta(seconds=max(warn_before_s, default=0))
    if next_end is None or next_end > clock.now() + ahead:
        return EndReport(0, 0, next_end)
    ended = await _each_batch(uow_factory, clock, _due, lambda _row, _now: EndReached())
    warned = await _each_batch(uow_factory, clock, _warnable(warn_before_s), _warning(sorted(warn_before_s)))
    async with uow_factory(one_statement=True) as uow:
        return EndReport(ended, warned, await uow.reservations.next_end())


async def _due(uow: UnitOfWork, now: datetime) -> list[str]:
    return await uow.reservations.due(now, _BATCH)


async def _left_alone(uow: UnitOfWork, now: datetime) -> list[str]:
    return await uow.connections.left_alone(now, _BATCH)


def _warnable(thresholds: Sequence[int]) -> Finder:
    async def find(uow: UnitOfWork, now: datetime) -> list[str]:
        return await uow.reservations.warnable(now, thresholds, _BATCH)

    return find


def _warning(thresholds: Sequence[int]) -> EventOf:
    def event(row: Reservation, now: datetime) -> Event | None:
        """The nearest due warning that is shorter than the whole job."""
        if row.ends_at is None:
            return None
        left = (row.ends_at - now).total_seconds()
        due = [before for before in thresholds if left <= before < row.duration.total_seconds()]
        return WarningDue(due[0]) if due else None

    return event


async def _each_batch(uow_factory: UnitOfWorkFactory, clock: Clock, find: Finder, event_of: EventOf) -> int:
    done = 0
    while True:
        async with uow_factory() as uow:
            ids = await find(uow, clock.now())
            rows = await uow.reservations.lock(ids) if ids else {}
            now = clock.now()
            changes = []
            for row in rows.values():
                event = event_of(row, now)
                change = None if event is None else decide(row, event, now)
                if change is not None:
                    changes.append(change)
            await carry_out(uow, changes)
        done += len(changes)
        # A batch without any change would be read again and again.
        if len(ids) < _BATCH or not changes:
            return done


async def repair_stuck(
    uow_factory: UnitOfWorkFactory, cluster: Cluster, clock: Clock, rules: RepairRules, asked: RepeatedEndRequests
) -> RepairReport:
    """Give up late starts, and repeat delete messages for pods that don't end (see `expire`)."""
    now = clock.now()
    async with uow_factory() as uow:
        ids = await uow.reservations.stuck(
            starting_before=now - rules.start_allowance, ending_before=now - rules.ending_patience, limit=_BATCH
        )
        rows = await uow.reservations.get(ids) if ids else {}
        ending = [row.id for row in rows.values() if row.status is JobStatus.ENDING]
        resent = await uow.reservations.resend(asked.due(ending, now))
        if resent:
            uow.wake(Channel.POD_OPERATIONS)
    late = [row for row in rows.values() if row.status is JobStatus.STARTING]
    if not late:
        return RepairReport(0, 0, resent)
    try:
        listing = await cluster.list_pods()
    except ClusterUnavailableError:
        # Their pods may have been running unseen; the next run checks again.
        return RepairReport(0, len(late), resent)
    since = now - rules.start_allowance
    timed_out = {row.id: row.version for row in late if _has_had_its_time(row, listing.pods, since)}
    if not timed_out:
        return RepairReport(0, 0, resent)
    event = StartTimedOut(rules.start_allowance, rules.max_starts)
    # Reservations with a pending create hold their pod lock, and are left to the next run. Under the locks no pod can
    # appear, so a second list shows pods that were created since the first.
    async with uow_factory.hold_pods(sorted(timed_out)) as held:
        try:
            pods = (await cluster.list_pods()).pods if held.ids else ()
        except ClusterUnavailableError:
            return RepairReport(0, len(late), resent)
        async with held.work() as uow:
            locked = await uow.reservations.lock(sorted(held.ids)) if held.ids else {}
            now = clock.now()
            decided = [
                decide(row, event, now)
                for row in locked.values()
                if row.version == timed_out[row.id] and _has_had_its_time(row, pods, since)
            ]
            changes = [change for change in decided if change is not None]
            await carry_out(uow, changes)
    return RepairReport(len(changes), 0, resent)


def _has_had_its_time(row: Reservation, pods: Sequence[PodStatus], since: datetime) -> bool:
    """Whether a late start has failed: its pods have not all begun, and none was created after `since`.

    Pods that were created late, after an outage of the cluster, have the whole start allowance.
    """
    young = any(
        pod.created_at is not None and pod.created_at > since
        for pod in pods
        if (pod.name.reservation_id, pod.name.attempt) == (row.id, row.attempt)
    )
    return not young and not _all_begun(row, pods)


def _all_begun(row: Reservation, pods: Iterable[PodStatus]) -> bool:
    """Whether all pods of a starting reservation run or have run, even if that was not observed yet."""
    begun = {
        pod.name.rank
        for pod in pods
        if (pod.name.reservation_id, pod.name.attempt) == (row.id, row.attempt)
        and (pod.phase is PodPhase.RUNNING or pod.started_at is not None)
    }
    return len(begun) == row.nodes

"""Ending what is due, warning before, repairing what is stuck. Level-triggered: a missed run is made up by the next.

The leading processor does this as soon as something is due, and `reservation_expiry` from a timer behind it: both may
look at the same time, since each row is decided under its lock from what it is then.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.changes import EndReached, Event, StartTimedOut, WarningDue
from reservation_core.domain.jobs.lifecycle import decide
from reservation_core.domain.jobs.repeated_asking import AskedAgain
from reservation_core.domain.model import JobStatus, PodPhase, PodStatus, Reservation
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import Cluster, ClusterUnavailableError
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.carry_out import carry_out

_BATCH = 500
Finder = Callable[[UnitOfWork, datetime], Awaitable[list[str]]]
EventOf = Callable[[Reservation, datetime], Event | None]


@dataclass(frozen=True, slots=True)
class RepairRules:
    """How long starts and ends may take, and how often a start is tried."""

    start_allowance: timedelta
    max_starts: int
    ending_patience: timedelta


@dataclass(frozen=True, slots=True)
class ExpiryRules:
    """When to warn (seconds before the end), how long things may take, and how often a start is tried."""

    warn_before_s: Sequence[int]
    start_allowance: timedelta
    max_starts: int
    ending_patience: timedelta

    @property
    def repair(self) -> RepairRules:
        """The part about what is stuck."""
        return RepairRules(self.start_allowance, self.max_starts, self.ending_patience)


@dataclass(frozen=True, slots=True)
class EndReport:
    """What one look at the clock did; `next_end` is when the next running job has to end, None without one."""

    ended: int
    warned: int
    next_end: datetime | None

    def __bool__(self) -> bool:
        return bool(self.ended or self.warned)


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What one repair did. `unknown` starts are late, and the cluster could not be asked about them."""

    timed_out: int
    unknown: int
    resent: int

    def __bool__(self) -> bool:
        return bool(self.timed_out or self.unknown or self.resent)


@dataclass(frozen=True, slots=True)
class ExpiryReport:
    """What one run did. `unknown` starts are late, and the cluster could not be asked about them."""

    ended: int
    warned: int
    timed_out: int
    unknown: int
    resent: int


async def expire(
    uow_factory: UnitOfWorkFactory, cluster: Cluster, clock: Clock, rules: ExpiryRules, asked: AskedAgain | None = None
) -> ExpiryReport:
    """Look once at everything that has a time, and act on what is due.

    The cluster is asked before a start is given up, for its silence says nothing about a pod. Repeated callers pass the
    same `asked` each time, so that pods that do not end are not asked for at every look.
    """
    asked = asked or AskedAgain(rules.ending_patience)
    ends = await end_due(uow_factory, clock, rules.warn_before_s)
    repair = await repair_stuck(uow_factory, cluster, clock, rules.repair, asked)
    return ExpiryReport(ends.ended, ends.warned, repair.timed_out, repair.unknown, repair.resent)


async def end_due(uow_factory: UnitOfWorkFactory, clock: Clock, warn_before_s: Sequence[int]) -> EndReport:
    """End every job whose end has come, and warn those whose end is near (`warn_before_s`: seconds before it)."""
    ended = await _each_batch(uow_factory, clock, _due, lambda _row, _now: EndReached())
    warned = await _each_batch(uow_factory, clock, _warnable(warn_before_s), _warning(sorted(warn_before_s)))
    async with uow_factory(one_statement=True) as uow:
        return EndReport(ended, warned, await uow.reservations.next_end())


async def _due(uow: UnitOfWork, now: datetime) -> list[str]:
    return await uow.reservations.due(now, _BATCH)


def _warnable(thresholds: Sequence[int]) -> Finder:
    async def find(uow: UnitOfWork, now: datetime) -> list[str]:
        return await uow.reservations.warnable(now, thresholds, _BATCH)

    return find


def _warning(thresholds: Sequence[int]) -> EventOf:
    def event(row: Reservation, now: datetime) -> Event | None:
        """The nearest warning that is due; a warning longer than the whole job would say nothing."""
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
        # A batch without any change would be found again and again.
        if len(ids) < _BATCH or not changes:
            return done


async def repair_stuck(
    uow_factory: UnitOfWorkFactory, cluster: Cluster, clock: Clock, rules: RepairRules, asked: AskedAgain
) -> RepairReport:
    """Give up starts that take too long, and ask again for the end of pods that don't end (see `expire`)."""
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
        # Their pods may run since long ago: only nobody could see it. They are looked at again in the next run.
        return RepairReport(0, len(late), resent)
    since = now - rules.start_allowance
    timed_out = {row.id: row.version for row in late if _has_had_its_time(row, listing.pods, since)}
    if not timed_out:
        return RepairReport(0, 0, resent)
    event = StartTimedOut(rules.start_allowance, rules.max_starts)
    # While a create is under way its pod may come to be at any moment; it is left to the next run. And one that was
    # carried out since the list above is seen in this one: none comes to be while its lock is held here.
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
    """Whether a late start is over: its pods have not all begun, and none of them was made only after `since`.

    While the cluster was silent no pod could be made: what was made as soon as it spoke again has its own time.
    """
    young = any(
        pod.created_at is not None and pod.created_at > since
        for pod in pods
        if (pod.name.reservation_id, pod.name.attempt) == (row.id, row.attempt)
    )
    return not young and not _all_begun(row, pods)


def _all_begun(row: Reservation, pods: Iterable[PodStatus]) -> bool:
    """Whether all pods of a starting reservation run or have run, which only was not observed yet."""
    begun = {
        pod.name.rank
        for pod in pods
        if (pod.name.reservation_id, pod.name.attempt) == (row.id, row.attempt)
        and (pod.phase is PodPhase.RUNNING or pod.started_at is not None)
    }
    return len(begun) == row.nodes

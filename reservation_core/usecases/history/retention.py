"""Removing what is old: level-triggered, in short transactions, never more than a bounded part of it at a time.

A part that was removed is counted in the same transaction. A process killed in the middle leaves that part as it was,
and the next look begins with the oldest again.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.history.retention import (
    HistoryKind,
    RetentionRules,
    events_older_than,
    jobs_older_than,
    ledger_older_than,
    older_than,
)
from reservation_core.ports.cluster import Cluster
from reservation_core.ports.history.retention import LockNotHadError, Place
from reservation_core.ports.queues import QueueName

BATCH = 100
ROWS = 50
"""Of the ledger in one part: each is looked up together with its reservation and its booking."""
LINKS = 1000
"""Of the audit log's chain in one part."""
PARTS = 100
"""So many parts of each kind are removed in one look; what is left has to wait for the next."""

Part = Callable[[UnitOfWork, datetime], Awaitable[int]]
"""Removes one part of what is older than a time, and returns how many that were."""


@dataclass
class RetentionWalk:
    """Where the looks of one process are; nothing that must not be forgotten. None: at the oldest."""

    jobs: Place | None = None
    allocations: int | None = None


@dataclass
class RetentionReport:
    """How many were removed of each kind, of those of which any were, and what could not be done now."""

    removed: dict[HistoryKind, int] = field(default_factory=dict)
    put_off: list[str] = field(default_factory=list)


class _Look:
    """One look at everything: how far it may go, and what it did."""

    def __init__(self, uow_factory: UnitOfWorkFactory, now: datetime, walk: RetentionWalk) -> None:
        self._uow_factory = uow_factory
        self._now = now
        self._walk = walk
        self.report = RetentionReport()
        self.failures: list[Exception] = []

    @contextmanager
    def kept_for_later(self) -> Iterator[None]:
        """What fails within keeps nothing that follows: it is raised when all else is done."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is raised at the end
            self.failures.append(error)

    async def in_parts(
        self, kind: HistoryKind, before: datetime | None, part: Part, place: Callable[[], object] = lambda: None
    ) -> None:
        """Remove parts until nothing is left, and count each as it goes; `before` None: nothing is ever old.

        A part in which all had to stay is the last, unless the walk has a `place` where it goes on.
        """
        for _ in range(PARTS):
            async with self._uow_factory() as uow:
                count = 0 if before is None else await part(uow, before)
                letters = kind is HistoryKind.DEAD_LETTERS
                oldest_at = await uow.queue.oldest_dead_letter() if letters else await uow.retention.oldest(kind)
                await uow.retention.note(kind, count, oldest_at, self._now)
            if count:
                self.report.removed[kind] = self.report.removed.get(kind, 0) + count
            elif place() is None:
                return

    async def events(self, keep: timedelta | None) -> None:
        """Partitions for what comes, and none for what is old."""
        try:
            async with self._uow_factory() as uow:
                await uow.retention.make_event_partitions()
            await self.in_parts(HistoryKind.EVENTS, events_older_than(self._now, keep, None), self._one_partition)
        except LockNotHadError as error:
            self.report.put_off.append(str(error))
        for _ in range(PARTS):
            async with self._uow_factory() as uow:
                if not await uow.audit_chain.trim(LINKS):
                    return

    async def _one_partition(self, uow: UnitOfWork, before: datetime) -> int:
        if not await uow.retention.events_are_due(before):
            return 0
        # Asked only now: it takes a look at all that is not over.
        before = min(before, await uow.retention.oldest_open() or before)
        return await uow.retention.drop_events(before) if await uow.retention.events_are_due(before) else 0

    async def some_jobs(self, uow: UnitOfWork, before: datetime) -> int:
        """The next that ended before a time."""
        part = await uow.retention.remove_reservations(before, self._walk.jobs, BATCH)
        self._walk.jobs = part.goes_on_after
        return part.count

    async def some_allocations(self, uow: UnitOfWork, before: datetime) -> int:
        """The next rows of the ledger of what ended before a time."""
        part = await uow.retention.remove_allocations(before, self._walk.allocations, ROWS)
        self._walk.allocations = part.goes_on_after
        return part.count

    async def logs(self, cluster: Cluster, before: datetime | None, most_bytes: int | None) -> None:
        """Those that the cluster itself keeps."""
        trimmed = await cluster.trim_logs(written_before=before, most_bytes=most_bytes)
        async with self._uow_factory() as uow:
            await uow.retention.note(
                HistoryKind.LOCAL_LOGS, trimmed.removed, trimmed.oldest_at, self._now, trimmed.kept_bytes
            )
        if trimmed.removed:
            self.report.removed[HistoryKind.LOCAL_LOGS] = trimmed.removed


async def _some_pod_logs(uow: UnitOfWork, before: datetime) -> int:
    return await uow.retention.remove_pod_logs(before, BATCH)


async def _some_keys(uow: UnitOfWork, before: datetime) -> int:
    return await uow.retention.remove_keys(before, BATCH)


async def _some_dead_letters(uow: UnitOfWork, before: datetime) -> int:
    return sum([await uow.queue.forget_dead_letters(queue, before, BATCH) for queue in QueueName])


async def remove_old(
    uow_factory: UnitOfWorkFactory, cluster: Cluster, rules: RetentionRules, walk: RetentionWalk
) -> RetentionReport:
    """Look once. Repeated callers pass the same `walk`.

    Raises what kept it from removing something, such as ClusterUnavailableError, after all else is done; where it was
    more than one thing, a group.
    """
    async with uow_factory() as uow:
        now = await uow.now()
        needed = await uow.retention.still_needed()
    look = _Look(uow_factory, now, walk)
    jobs, allocations = jobs_older_than(now, rules, needed), ledger_older_than(now, rules.allocations, needed)
    # Where jobs are kept as long, their rows of the ledger have gone with them by now.
    sooner = allocations if jobs is None or (allocations is not None and jobs < allocations) else None
    logs = older_than(now, rules.logs)
    with look.kept_for_later():
        await look.events(rules.events)
    with look.kept_for_later():
        await look.in_parts(HistoryKind.JOBS, jobs, look.some_jobs, lambda: walk.jobs)
    with look.kept_for_later():
        await look.in_parts(HistoryKind.ALLOCATIONS, sooner, look.some_allocations, lambda: walk.allocations)
    with look.kept_for_later():
        await look.in_parts(HistoryKind.POD_LOGS, logs, _some_pod_logs)
    with look.kept_for_later():
        await look.in_parts(HistoryKind.IDEMPOTENCY, older_than(now, rules.idempotency), _some_keys)
    with look.kept_for_later():
        await look.in_parts(HistoryKind.DEAD_LETTERS, older_than(now, rules.dead_letters), _some_dead_letters)
    with look.kept_for_later():
        await look.logs(cluster, logs, rules.log_bytes)
    if len(look.failures) > 1:
        raise ExceptionGroup("some of what is old could not be removed", look.failures)
    for failure in look.failures:
        raise failure
    return look.report

"""Remove old history: level-triggered, in bounded parts and short transactions.

Removed objects are counted in the same transaction. A killed process leaves its current part unchanged, and the next
run begins with the oldest objects again.
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
from reservation_core.ports.history.retention import LockTimeoutError, Place
from reservation_core.ports.queues import QueueName
from reservation_core.usecases.gpu_use.keep_use import keep_use
from reservation_core.usecases.history.old_files import remove_old_files

BATCH = 100
ROWS = 50
"""Ledger rows in a part; each is read with its reservation and its booking."""
LINKS = 1000
"""Links of the audit log's chain in a part."""
PARTS = 100
"""Parts of a kind in a run; the rest waits for the next run."""

Part = Callable[[UnitOfWork, datetime], Awaitable[int]]
"""Removes a part of the objects before a time, and returns their number."""


@dataclass
class RetentionWalk:
    """The position of one process's runs, which may be lost. None: at the oldest."""

    jobs: Place | None = None
    allocations: int | None = None


@dataclass
class RetentionReport:
    """The number of removed objects by kind, and the postponed work."""

    removed: dict[HistoryKind, int] = field(default_factory=dict)
    put_off: list[str] = field(default_factory=list)


class _Run:
    """One run over all kinds, with its report."""

    def __init__(self, uow_factory: UnitOfWorkFactory, now: datetime, walk: RetentionWalk) -> None:
        self._uow_factory = uow_factory
        self._now = now
        self._walk = walk
        self.report = RetentionReport()
        self.failures: list[Exception] = []

    @contextmanager
    def kept_for_later(self) -> Iterator[None]:
        """Keep an exception of the block until all other kinds are done."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 -- raised at the end of the run
            self.failures.append(error)

    async def in_parts(
        self, kind: HistoryKind, before: datetime | None, part: Part, place: Callable[[], object] = lambda: None
    ) -> None:
        """Remove and count parts until nothing is left; `before` None: nothing is old.

        A part without removals is the last one, unless the walk continues at a `place`.
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
        """Create partitions for new events, and drop old ones."""
        try:
            async with self._uow_factory() as uow:
                await uow.retention.make_event_partitions()
            await self.in_parts(HistoryKind.EVENTS, events_older_than(self._now, keep, None), self._one_partition)
        except LockTimeoutError as error:
            self.report.put_off.append(str(error))
        for _ in range(PARTS):
            async with self._uow_factory() as uow:
                if not await uow.audit_chain.trim(LINKS):
                    return

    async def gpu_use(self) -> None:
        """Roll samples of GPUs up, and drop old ones."""
        try:
            await keep_use(self._uow_factory)
        except LockTimeoutError as error:
            self.report.put_off.append(str(error))

    async def _one_partition(self, uow: UnitOfWork, before: datetime) -> int:
        if not await uow.retention.events_are_due(before):
            return 0
        # Read only if needed, as it scans all open reservations.
        before = min(before, await uow.retention.oldest_open() or before)
        return await uow.retention.drop_events(before) if await uow.retention.events_are_due(before) else 0

    async def some_jobs(self, uow: UnitOfWork, before: datetime) -> int:
        """Remove the next jobs, bookings and windows that ended before a time."""
        part = await uow.retention.remove_reservations(before, self._walk.jobs, BATCH)
        self._walk.jobs = part.goes_on_after
        return part.count

    async def some_allocations(self, uow: UnitOfWork, before: datetime) -> int:
        """Remove the next ledger rows of reservations that ended before a time."""
        part = await uow.retention.remove_allocations(before, self._walk.allocations, ROWS)
        self._walk.allocations = part.goes_on_after
        return part.count

    async def logs(self, cluster: Cluster, before: datetime | None, most_bytes: int | None) -> None:
        """Remove logs that the cluster keeps."""
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


async def remove_old_history(
    uow_factory: UnitOfWorkFactory, cluster: Cluster, rules: RetentionRules, walk: RetentionWalk
) -> RetentionReport:
    """Run once; repeated callers pass the same `walk`.

    Failures such as ClusterUnavailableError are raised after all other kinds are done, several as a group.
    """
    async with uow_factory() as uow:
        now = await uow.now()
        needed = await uow.retention.still_needed()
    run = _Run(uow_factory, now, walk)
    jobs, allocations = jobs_older_than(now, rules, needed), ledger_older_than(now, rules.allocations, needed)
    # Ledger rows are removed with their jobs, unless jobs are kept longer.
    sooner = allocations if jobs is None or (allocations is not None and jobs < allocations) else None
    logs = older_than(now, rules.logs)
    with run.kept_for_later():
        await run.events(rules.events)
    with run.kept_for_later():
        await run.gpu_use()
    with run.kept_for_later():
        await run.in_parts(HistoryKind.JOBS, jobs, run.some_jobs, lambda: walk.jobs)
    with run.kept_for_later():
        await run.in_parts(HistoryKind.ALLOCATIONS, sooner, run.some_allocations, lambda: walk.allocations)
    with run.kept_for_later():
        await run.in_parts(HistoryKind.POD_LOGS, logs, _some_pod_logs)
    with run.kept_for_later():
        await run.in_parts(HistoryKind.IDEMPOTENCY, older_than(now, rules.idempotency), _some_keys)
    with run.kept_for_later():
        await run.in_parts(HistoryKind.DEAD_LETTERS, older_than(now, rules.dead_letters), _some_dead_letters)
    with run.kept_for_later():
        await remove_old_files(uow_factory, now - rules.files, now)
    with run.kept_for_later():
        await run.logs(cluster, logs, rules.log_bytes)
    if len(run.failures) > 1:
        raise ExceptionGroup("some of what is old could not be removed", run.failures)
    for failure in run.failures:
        raise failure
    return run.report

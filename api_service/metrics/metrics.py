"""Metrics of queues, jobs, GPUs and requests.

Depths and counts are read from the database at a scrape, at most once a second. The waiting and running times of ended
jobs come from the audit log, in every API process alike: take the `max` over processes, not the sum. The audit log is
read up to ten seconds ago, because rows of transactions that commit late have earlier ids.
"""

import asyncio
from datetime import datetime, timedelta

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from api_service.metrics.gpu_metrics import GpuSeries, gpu_exposition
from api_service.metrics.http_metrics import HttpMetrics
from api_service.metrics.replica_metrics import ReplicaCollector
from api_service.metrics.retention_metrics import RetentionCollector
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.event_kinds import BookingEventKind, JobEventKind, NodeEventKind
from reservation_core.domain.statuses import FINAL_STATUSES, ReservationKind
from reservation_core.ports.clock import Clock
from reservation_core.ports.gpu_use import GpuUseNow
from reservation_core.ports.planning.measurements import JudgedPredictions
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.loops.loop_metrics import LoopCollector
from reservation_core.runtime.loops.loops import Loops
from reservation_core.runtime.reading.reading import Reads, ReplicaReads
from reservation_core.usecases.history.audit_chain import chain_standing

_REUSE_S = 1.0
_SETTLED = timedelta(seconds=10)
_PAGE = 5000
_MAX_PAGES = 20
_CALENDAR_KINDS = ("booking_", "maintenance_", "no_show_warning", "start_promise_missed")
_LONG_BUCKETS = (1, 2, 5, 10, 30, 60, 300, 900, 1800, 3600, 4 * 3600, 12 * 3600, 86_400, 3 * 86_400, 7 * 86_400)
_log = structlog.get_logger(__name__)


class ApiMetrics:
    """The process's metrics, in a registry of their own so that several applications can live in one process.

    `http` counts requests, `show` adds other collectors.
    """

    def __init__(
        self,
        reads: Reads,
        clock: Clock,
        *,
        settled: timedelta = _SETTLED,
        loops: Loops | None = None,
        gpu_series: GpuSeries | None = None,
    ) -> None:
        self._reads = reads
        self._gpu_series = gpu_series or GpuSeries()
        self._gpus_in_use: list[GpuUseNow] = []
        self._gpus_left_out = 0
        self._clock = clock
        self._settled = settled
        self._lock = asyncio.Lock()
        self._text = b""
        self._fresh_until = 0.0
        self._seen_event: int | None = None
        self._seen_calendar: int | None = None
        registry = self._registry = _process_registry(reads, loops)
        self._retention = RetentionCollector()
        registry.register(self._retention)
        self.http = HttpMetrics(registry)
        self.show = registry.register
        self._add_gauges(registry)
        self._add_counts(registry)

    def _add_gauges(self, registry: CollectorRegistry) -> None:
        """Values of this moment."""
        self._depth = Gauge("gpu_dev_queue_depth", "Messages in a queue.", ["queue"], registry=registry)
        self._age = Gauge("gpu_dev_queue_oldest_seconds", "Age of the oldest message.", ["queue"], registry=registry)
        self._jobs = Gauge("gpu_dev_jobs", "Jobs that have not ended, by status.", ["status"], registry=registry)
        self._gpus = Gauge("gpu_dev_gpus", "GPUs by type and state.", ["gpu_type", "state"], registry=registry)
        self._unknown_pods = Gauge(
            "gpu_dev_unknown_pods", "Pods that the ledger does not know: see `gpu-dev pods`.", registry=registry
        )
        self._chained = Gauge(
            "gpu_dev_audit_chain_position", "How many events the audit log has chained.", registry=registry
        )
        self._unchained = Gauge(
            "gpu_dev_audit_unchained_seconds",
            "Age of the oldest event that is not chained yet; 0 where all are.",
            registry=registry,
        )
        self._database = Gauge("gpu_dev_database_up", "Whether the database answered this time.", registry=registry)

    def _add_counts(self, registry: CollectorRegistry) -> None:
        """Counts of what happened, and the bookings that are not over."""
        self._ended = Counter("gpu_dev_jobs_ended", "Jobs that ended, by final status.", ["status"], registry=registry)
        self._bookings = Gauge(
            "gpu_dev_bookings",
            "Bookings that are not over, by status; `waiting` is the waitlist.",
            ["status"],
            registry=registry,
        )
        self._calendar = Counter(
            "gpu_dev_calendar_events",
            "What happened to bookings and maintenance windows, by the audit log's kinds.",
            ["kind"],
            registry=registry,
        )
        self._missed = Counter(
            "gpu_dev_start_promises_missed",
            "Jobs and bookings that could not start when they were promised to.",
            ["of"],
            registry=registry,
        )
        self._predictions = Counter(
            "gpu_dev_start_predictions",
            "Jobs that started, by whether they did by the p50 and p90 that were first predicted.",
            ["quantile", "right"],
            registry=registry,
        )
        self._begin_at_zero()
        self._wait = Histogram(
            "gpu_dev_job_wait_seconds",
            "Submission to the first start, of jobs as they end.",
            buckets=_LONG_BUCKETS,
            registry=registry,
        )
        self._run = Histogram(
            "gpu_dev_job_run_seconds",
            "The last start to the end, of jobs as they end.",
            buckets=_LONG_BUCKETS,
            registry=registry,
        )

    def _begin_at_zero(self) -> None:
        """Show counters before they count: `increase` does not see the first count of a series that begins with it."""
        self._count_judged(JudgedPredictions(0, 0, 0))
        for status in FINAL_STATUSES:
            self._ended.labels(status.value)
        for of in (ReservationKind.JOB, ReservationKind.BOOKING):
            self._missed.labels(of.value)
        for kind in (*BookingEventKind, *NodeEventKind):
            if kind.startswith(_CALENDAR_KINDS):
                self._calendar.labels(kind.value)

    async def text(self) -> bytes:
        """The exposition. Without a database: the process's own metrics, and `gpu_dev_database_up 0`."""
        async with self._lock:
            if asyncio.get_running_loop().time() >= self._fresh_until:
                try:
                    await self._reads(self._read)
                    self._database.set(1)
                except DatabaseUnavailableError:
                    self._database.set(0)
                    self._gpus_in_use = []
                of_gpus = await gpu_exposition(self._gpus_in_use, self._gpu_series, self._gpus_left_out)
                self._text = generate_latest(self._registry) + of_gpus
                self._fresh_until = asyncio.get_running_loop().time() + _REUSE_S
            return self._text

    async def _read(self, uow: UnitOfWork) -> None:
        queues = await uow.queue.metrics()
        jobs = await uow.measurements.job_counts()
        gpus = await uow.inventory.gpu_counts()
        self._unknown_pods.set(await uow.unknown_pods.count())
        await self._read_gpu_use(uow, sum(count for _, _, count in gpus))
        bookings = await uow.booking_life.counts()
        self._retention.standing = await uow.retention.standing()
        standing = await chain_standing(uow)
        self._chained.set(standing.head.link.position)
        now = self._clock.now()
        self._unchained.set(max(0.0, (now - (standing.unchained_since or now)).total_seconds()))
        await self._count_ended(uow, now - self._settled)
        for gauge in (self._depth, self._age, self._jobs, self._gpus, self._bookings):
            gauge.clear()
        for queue in queues:
            self._depth.labels(queue.queue).set(queue.depth)
            self._age.labels(queue.queue).set(queue.oldest_age_s or 0)
        for status, count in jobs:
            self._jobs.labels(status.value).set(count)
        for gpu_type, state, count in gpus:
            self._gpus.labels(gpu_type, state.value).set(count)
        for booking_status, count in bookings:
            self._bookings.labels(booking_status.value).set(count)

    async def _read_gpu_use(self, uow: UnitOfWork, gpus: int) -> None:
        """Read the use of the first GPUs, of `gpus`."""
        series = self._gpu_series
        self._gpus_in_use = (
            await uow.gpu_use.of_now(None, series.gpus, self._clock.now(), series.samples_last) if series.gpus else []
        )
        self._gpus_left_out = max(0, gpus - len(self._gpus_in_use))

    async def _count_ended(self, uow: UnitOfWork, settled_before: datetime) -> None:
        newest = await uow.measurements.newest_event(settled_before)
        if self._seen_event is None:
            # Counters begin at zero with the process; earlier events don't count.
            self._seen_event = newest
        await self._count_calendar(uow, newest)
        for _ in range(_MAX_PAGES):
            ended = await uow.measurements.ended(self._seen_event, newest, _PAGE)
            for job in ended:
                self._ended.labels(job.status.value).inc()
                if job.first_started_at is not None:
                    self._wait.observe((job.first_started_at - job.created_at).total_seconds())
                if job.started_at is not None:
                    self._run.observe((job.finished_at - job.started_at).total_seconds())
            self._seen_event = ended[-1].event_id if len(ended) == _PAGE else newest
            if len(ended) < _PAGE:
                return
        _log.warning("metrics_behind", seen_event=self._seen_event, newest_event=newest)

    async def _count_calendar(self, uow: UnitOfWork, newest: int) -> None:
        if self._seen_calendar is not None:
            for kind_count in await uow.measurements.calendar_events(self._seen_calendar, newest):
                self._calendar.labels(kind_count.kind).inc(kind_count.count)
                if kind_count.kind == JobEventKind.START_PROMISE_MISSED:
                    self._missed.labels(kind_count.of.value).inc(kind_count.count)
            self._count_judged(await uow.measurements.judged_predictions(self._seen_calendar, newest))
        self._seen_calendar = newest

    def _count_judged(self, judged: JudgedPredictions) -> None:
        for quantile, right in (("p50", judged.by_p50), ("p90", judged.by_p90)):
            self._predictions.labels(quantile, "yes").inc(right)
            self._predictions.labels(quantile, "no").inc(judged.starts - right)


def _process_registry(reads: Reads, loops: Loops | None) -> CollectorRegistry:
    """A registry with the collectors of the process itself: its loops, its use of a replica, its resources."""
    registry = CollectorRegistry()
    if isinstance(reads, ReplicaReads):
        registry.register(ReplicaCollector(reads.use))
    if loops is not None:
        registry.register(LoopCollector(loops))
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    return registry

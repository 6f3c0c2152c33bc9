"""Health, readiness and metrics of the process."""

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from pod_scheduling.runtime.map_scheduling import RunningScheduler
from reservation_core.runtime.loops.loop_metrics import LoopCollector

SERVICE = "gpu-scheduler"


def create_app(running: RunningScheduler) -> FastAPI:
    app = FastAPI(title="GPU Dev Server: gpu-scheduler", docs_url=None, redoc_url=None, openapi_url=None)
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    registry.register(_Scheduler(running))
    registry.register(LoopCollector(running.loops))

    @app.get("/health")
    async def health() -> Response:
        """A process whose event loop hangs does not answer."""
        return JSONResponse({"service": SERVICE, "status": "healthy"})

    @app.get("/ready")
    async def ready() -> Response:
        """Ready once everything was seen; a standby without the lease is as ready."""
        listed = running.scheduler.listed
        failing = [str(loop) for loop in running.loops.failing()]
        told = {"status": "ready" if listed else "reading nodes and pods", **({"failing": failing} if failing else {})}
        return JSONResponse(told, 200 if listed else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type="text/plain; version=0.0.4; charset=utf-8")

    return app


class _Scheduler(Collector):
    """The scheduler's metrics."""

    def __init__(self, running: RunningScheduler) -> None:
        self._running = running

    def collect(self) -> list[CounterMetricFamily | GaugeMetricFamily]:
        scheduler, counts = self._running.scheduler, self._running.scheduler.counts
        return [
            GaugeMetricFamily("gpu_dev_scheduler_leading", "1 while this replica binds.", self._running.lease.holds()),
            GaugeMetricFamily("gpu_dev_scheduler_waiting", "Pods that are not bound.", scheduler.waiting),
            CounterMetricFamily("gpu_dev_scheduler_bound", "Pods bound.", counts.bound),
            CounterMetricFamily(
                "gpu_dev_scheduler_refused",
                "Bindings that failed and were tried again.",
                counts.refused + counts.unanswered,
            ),
            CounterMetricFamily("gpu_dev_scheduler_told", "Times a pod was told why it waits.", scheduler.told),
            CounterMetricFamily(
                "gpu_dev_scheduler_events_left_out", "Events not written.", self._running.events.left_out
            ),
        ]

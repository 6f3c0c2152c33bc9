"""Metrics of the installation's CronJobs, whose own pods are gone before Prometheus can scrape them."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from reservation_core.runtime.lease_namespace import lease_namespace
from reservation_core.runtime.loops.loops import Loops
from reservation_core.runtime.processes.companions import beside
from reservation_core.runtime.settings.components import ProcessorSettings
from reservation_core.runtime.settings.error import SettingsError

_READ_EVERY_S = 30.0


class CronJobCollector(Collector):
    """Exports when CronJobs last succeeded."""

    def __init__(self) -> None:
        self.succeeded: Mapping[str, datetime] = {}

    def collect(self) -> Iterator[Metric]:
        """The times of the last read."""
        family = GaugeMetricFamily(
            "gpu_dev_cron_job_succeeded_timestamp_seconds",
            "When a CronJob last ended well, in seconds since 1970; before the first time, when it was made.",
            labels=["cron_job"],
        )
        for name, at in self.succeeded.items():
            family.add_metric([name], at.timestamp())
        yield family


@asynccontextmanager
async def watch_cron_jobs(settings: ProcessorSettings, loops: Loops) -> AsyncIterator[tuple[Collector, ...]]:
    """Read the CronJobs of the settings regularly during the block. Raises SettingsError."""
    if not settings.cron_jobs:
        yield ()
        return
    # Imported only if needed: the client library takes 50 MB and half a second.
    from reservation_core.adapters.kubernetes.api_server.credentials import KubeconfigError  # noqa: PLC0415
    from reservation_core.adapters.kubernetes.other_objects.cron_jobs import last_successes  # noqa: PLC0415
    from reservation_core.runtime.kubernetes import open_transport  # noqa: PLC0415

    collector, namespace = CronJobCollector(), lease_namespace(None)
    async with AsyncExitStack() as closing:
        try:
            transport = open_transport(settings)
        except KubeconfigError as error:
            raise SettingsError(str(error)) from error
        closing.push_async_callback(transport.close)

        async def read() -> None:
            collector.succeeded = await last_successes(transport, namespace, settings.cron_jobs)

        reading = loops["cron_jobs"].repeat(read, rest_s=_READ_EVERY_S)
        await closing.enter_async_context(beside(reading, name="cron jobs"))
        yield (collector,)

"""Metrics of a process's loops."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from reservation_core.runtime.loops.loops import Loops


class LoopCollector(Collector):
    """Exports how often loops have failed, and for how long they have been failing."""

    def __init__(self, loops: Loops) -> None:
        self._loops = loops

    def collect(self) -> Iterator[Metric]:
        failures = CounterMetricFamily(
            "gpu_dev_loop_failures", "Failed steps of a loop of this process; each was tried again.", labels=["loop"]
        )
        failing = GaugeMetricFamily(
            "gpu_dev_loop_failing_seconds", "For how long no step of a loop has gone well; 0: all is well.",
            labels=["loop"],
        )  # fmt: skip
        for loop in self._loops:
            failures.add_metric([loop.name], loop.failures)
            failing.add_metric([loop.name], loop.failing_s)
        yield failures
        yield failing

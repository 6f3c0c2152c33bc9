"""Metrics of the database's replica."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from reservation_core.runtime.reading.reading import PrimaryReadReason, ReplicaUse


class ReplicaCollector(Collector):
    """The state of the replica and its use by this process."""

    def __init__(self, use: ReplicaUse) -> None:
        self._use = use

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "gpu_dev_replica_in_use", "Whether reads go to the replica, as of the last look.", self._use.in_use
        )
        yield GaugeMetricFamily(
            "gpu_dev_replica_lag_seconds", "How long the replica has not shown what the primary has.", self._use.lag_s
        )
        yield CounterMetricFamily("gpu_dev_replica_used", "Reads that the replica answered.", self._use.used)
        passed_over = CounterMetricFamily(
            "gpu_dev_replica_passed_over", "Reads that the primary had to answer, by why.", labels=["why"]
        )
        for why in PrimaryReadReason:
            passed_over.add_metric([why.value], self._use.passed_over[why])
        yield passed_over

"""Metrics of an HTTP server's bounds."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from reservation_core.runtime.http.bounded_protocol import ServerBounds


class HttpCollector(Collector):
    """Exports a server's connections, and its refusals by reason."""

    def __init__(self, bounds: ServerBounds) -> None:
        self._bounds = bounds

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("gpu_dev_http_connections", "Connections that are open.", len(self._bounds.slots))
        yield GaugeMetricFamily(
            "gpu_dev_http_connections_limit", "Connections that may be open.", self._bounds.limits.connections
        )
        refused = CounterMetricFamily(
            "gpu_dev_http_refused", "Requests and connections that were refused, by reason.", labels=["reason"]
        )
        for refusal, count in self._bounds.refusals.counts.items():
            refused.add_metric([refusal.value], count)
        yield refused

"""Metrics of a process's SSH server."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from reservation_core.runtime.ssh.counts import SshCounts, SshRefusal, StreamKind


class SshCollector(Collector):
    """Exports the counts of an SSH server."""

    def __init__(self, counts: SshCounts) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        counts = self._counts
        yield GaugeMetricFamily("gpu_dev_ssh_connections", "SSH connections that are open.", counts.open)
        yield CounterMetricFamily(
            "gpu_dev_ssh_authenticated", "SSH connections that were authenticated.", counts.authenticated
        )
        refused = CounterMetricFamily(
            "gpu_dev_ssh_refused", "Keys, connections and streams that were refused, by reason.", labels=["reason"]
        )
        for refusal in SshRefusal:
            refused.add_metric([refusal.value], counts.refused[refusal])
        yield refused
        opened = CounterMetricFamily("gpu_dev_ssh_streams", "Streams that were opened, by kind.", labels=["kind"])
        now_open = GaugeMetricFamily("gpu_dev_ssh_open_streams", "Streams that are open, by kind.", labels=["kind"])
        for kind in StreamKind:
            opened.add_metric([kind.value], counts.streams[kind])
            now_open.add_metric([kind.value], counts.open_streams[kind])
        yield opened
        yield now_open

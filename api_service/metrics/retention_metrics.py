"""Metrics of retention, as the database has them."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from reservation_core.domain.history.retention import Removed

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class RetentionCollector(Collector):
    """Removed rows, the age of the rest, and the time of the last look. `standing` is replaced at each read."""

    def __init__(self) -> None:
        self.standing: Sequence[Removed] = ()

    def collect(self) -> Iterator[Metric]:
        removed = CounterMetricFamily(
            "gpu_dev_retention_removed", "What was removed because it was old, by kind.", labels=["kind"]
        )
        oldest = GaugeMetricFamily(
            "gpu_dev_retention_oldest_seconds", "Age of the oldest that is left, at the last look.", labels=["kind"]
        )
        kept = GaugeMetricFamily(
            "gpu_dev_retention_kept_bytes", "Size of what is left, where it is bounded.", labels=["kind"]
        )
        looked = GaugeMetricFamily(
            "gpu_dev_retention_looked_timestamp_seconds", "When it was looked at last.", labels=["kind"]
        )
        for kind in self.standing:
            label = [kind.kind.value]
            removed.add_metric(label, kind.count)
            age = timedelta(0) if kind.oldest_at is None else kind.looked_at - kind.oldest_at
            oldest.add_metric(label, max(age.total_seconds(), 0))
            looked.add_metric(label, (kind.looked_at - _EPOCH).total_seconds())
            if kind.kept_bytes is not None:
                kept.add_metric(label, kind.kept_bytes)
        yield from (removed, oldest, kept, looked)

"""The extender's metrics: calls, their duration, and its state."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

_PREFIX = "gpu_dev_admission_"
_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5)


class Call(StrEnum):
    """The question of a call."""

    FILTER = "filter"
    PRIORITIZE = "prioritize"
    BIND = "bind"
    VOLCANO_PREDICATE = "volcano_predicate"
    VOLCANO_PRIORITIZE = "volcano_prioritize"
    VOLCANO_ALLOCATE = "volcano_allocate"
    VOLCANO_DEALLOCATE = "volcano_deallocate"


class CallOutcome(StrEnum):
    """The outcome of a call. `refused`: no node fits, or the binding was refused."""

    ANSWERED = "answered"
    REFUSED = "refused"
    BAD_REQUEST = "bad_request"
    NOT_SYNCED = "not_synced"
    ERROR = "error"


class ExtenderMetrics:
    """The process's metrics, in a registry of their own. `numbers` and `problems` are asked at each reading."""

    def __init__(self, numbers: Callable[[], Mapping[str, float]], problems: Callable[[], Sequence[str]]) -> None:
        registry = self._registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        registry.register(_Numbers(numbers, problems))
        calls = Counter(f"{_PREFIX}calls", "Calls, by what came of them.", ["call", "outcome"], registry=registry)
        seconds = Histogram(
            f"{_PREFIX}call_seconds", "Time to answer one.", ["call"], buckets=_BUCKETS, registry=registry
        )
        self._calls = {(call, outcome): calls.labels(call, outcome) for call in Call for outcome in CallOutcome}
        self._seconds = {call: seconds.labels(call) for call in Call}
        self._ends = Gauge(
            f"{_PREFIX}certificate_ends_seconds",
            "When the serving certificate ends, in seconds since 1970; 0 without one.",
            registry=registry,
        )

    def called(self, call: Call, outcome: CallOutcome, seconds: float) -> None:
        self._calls[call, outcome].inc()
        self._seconds[call].observe(seconds)

    def certificate_ends(self, at: float) -> None:
        """The certificate in use ends at `at`, in seconds since 1970."""
        self._ends.set(at)

    def show(self, collector: Collector) -> None:
        """Add the metrics of another part of the process."""
        self._registry.register(collector)

    def text(self) -> bytes:
        return generate_latest(self._registry)


class _Numbers(Collector):
    def __init__(self, numbers: Callable[[], Mapping[str, float]], problems: Callable[[], Sequence[str]]) -> None:
        self._numbers = numbers
        self._problems = problems

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        for name, value in self._numbers().items():
            told = name.removesuffix("_total").replace("_", " ").capitalize() + "."
            family = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            yield family(_PREFIX + name.removesuffix("_total"), told, value)
        yield GaugeMetricFamily(f"{_PREFIX}problems", "Problems that /health tells of.", len(self._problems()))

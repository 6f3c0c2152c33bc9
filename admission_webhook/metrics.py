"""The webhook's metrics: verdicts, their duration, and the end of the certificate."""

from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from reservation_core.runtime.loops.loop_metrics import LoopCollector
from reservation_core.runtime.loops.loops import Loops

QuestionOutcome = Literal["answered", "silent", "refused"]
Outcome = Literal["untouched", "patched", "denied", "not_a_pod", "bad_request", "stranger", "busy", "error"]
_OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.015, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 3)


class WebhookMetrics:
    """The process's metrics, in a registry of their own; `loops` are the process's loops, which are among them."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self.loops = Loops()
        registry.register(LoopCollector(self.loops))
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        reviews = Counter(
            "gpu_dev_webhook_reviews", "Reviews answered, by what came of them.", ["outcome"], registry=registry
        )
        self._reviews = {outcome: reviews.labels(outcome) for outcome in _OUTCOMES}
        self._seconds = Histogram(
            "gpu_dev_webhook_review_seconds", "Time to answer a review.", buckets=_BUCKETS, registry=registry
        )
        self._ends = Gauge(
            "gpu_dev_webhook_certificate_ends_seconds",
            "When the serving certificate ends, in seconds since 1970; 0 without one.",
            registry=registry,
        )

        self._questions = Counter(
            "gpu_dev_webhook_questions",
            "Questions to the schedulability service, by what came of them.",
            ["outcome"],
            registry=registry,
        )
        self._question_seconds = Histogram(
            "gpu_dev_webhook_question_seconds", "Time to ask one.", buckets=_BUCKETS, registry=registry
        )
        self._owners = Gauge(
            "gpu_dev_webhook_owners_file_usable",
            "0 while the owners file can't be read and the one before is gone by.",
            registry=registry,
        )
        self._owners.set(1)

    def review(self, outcome: Outcome, seconds: float) -> None:
        self._reviews[outcome].inc()
        self._seconds.observe(seconds)

    def certificate_ends(self, at: float) -> None:
        """The certificate in use ends at `at`, in seconds since 1970."""
        self._ends.set(at)

    def asked(self, outcome: QuestionOutcome, seconds: float) -> None:
        """Count one question put to the schedulability service."""
        self._questions.labels(outcome).inc()
        self._question_seconds.observe(seconds)

    def owners_usable(self, usable: bool) -> None:
        """Whether the owners file, as it is now, is the one in use."""
        self._owners.set(usable)

    def show(self, collector: Collector) -> None:
        """Add the metrics of another part of the process."""
        self._registry.register(collector)

    def text(self) -> bytes:
        return generate_latest(self._registry)

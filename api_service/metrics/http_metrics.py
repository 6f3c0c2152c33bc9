"""Metrics of requests, sign-in attempts, and the certificate that clients see."""

from enum import StrEnum
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from reservation_core.domain.statuses import SignInMethod


class SignInOutcome(StrEnum):
    """The outcome of a sign-in attempt."""

    SIGNED_IN = "signed_in"
    MALFORMED = "malformed"
    REFUSED = "refused"
    NOT_LET_IN = "not_let_in"
    UNAVAILABLE = "unavailable"
    TOO_MANY = "too_many"
    FAILED = "failed"


SignInWay = SignInMethod | Literal["token"]
"""The credential of a sign-in: a proof, or on the pages a token."""


class HttpMetrics:
    """Counters of the HTTP side, in the process's registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ["method", "route"]
        self._registry = registry
        self._requests = Counter("gpu_dev_http_requests", "Requests.", [*labels, "status"], registry=registry)
        self._sign_ins = Counter(
            "gpu_dev_sign_ins", "Attempts to sign in, by result.", ["method", "outcome"], registry=registry
        )
        self._latency = Histogram("gpu_dev_http_request_seconds", "Time to answer.", labels, registry=registry)
        self._unforeseen = Counter("gpu_dev_http_unforeseen_errors", "Answers 500.", registry=registry)
        self._certificate: Gauge | None = None
        # Finding the counter of a label set takes longer than counting, and there are few routes.
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        key = (method, route, status)
        children = self._children.get(key)
        if children is None:
            children = (self._requests.labels(method, route, str(status)), self._latency.labels(method, route))
            self._children[key] = children
        children[0].inc()
        children[1].observe(seconds)

    def count_sign_in(self, way: SignInWay | None, outcome: SignInOutcome) -> None:
        """Count one attempt; `way` is None where the attempt named none."""
        self._sign_ins.labels("unknown" if way is None else str(way), outcome.value).inc()

    def count_unforeseen_error(self) -> None:
        self._unforeseen.inc()

    def set_certificate_end(self, at: float) -> None:
        """The certificate in use ends at `at`, in seconds since 1970."""
        if self._certificate is None:
            self._certificate = Gauge(
                "gpu_dev_certificate_ends_seconds",
                "When the certificate that the API shows ends, in seconds since 1970.",
                registry=self._registry,
            )
        self._certificate.set(at)

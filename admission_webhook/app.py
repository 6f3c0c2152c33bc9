"""The application: reviews, and the state of the process."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import assert_never

import structlog
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from admission_webhook.admission_review import BadReviewError, ReviewQuestion, read_question, written_answer
from admission_webhook.bodies import RETRY_S, BodyLimits, RefusedReviewBodyError, ReviewBodies
from admission_webhook.metrics import Outcome, WebhookMetrics
from pod_scheduling.ports.reviewers import PodReviewer
from pod_scheduling.usecases.maps.review_pod import review_pod
from reservation_core.domain.pods.reviews import Denied, Patched, PodReview, Untouched, Verdict

SERVICE = "admission-webhook"
_STRANGER = (
    "Only the API server may ask here, and this connection showed no client certificate. Give the API server one for"
    " webhooks (--admission-control-config-file), signed by the authority in --client-ca.\n"
)
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class WebhookCondition:
    """The state of the process. `draining`: it is about to end, and new reviews belong to another replica."""

    certificate: bool = False
    draining: bool = False

    @property
    def trouble(self) -> str | None:
        """Why it is not ready; None while it is."""
        if self.draining:
            return "draining"
        return None if self.certificate else "no certificate"


def create_app(
    reviewers: Mapping[str, Sequence[PodReviewer]],
    condition: WebhookCondition,
    metrics: WebhookMetrics,
    limits: BodyLimits,
    *,
    clients_are_known: bool = False,
) -> FastAPI:
    """The ASGI application: a path for each list of reviewers, who are asked in order: each sees what those before made
    of the pod.

    `clients_are_known`: only a client with a certificate is answered about pods; what was booked concerns nobody else.
    """
    bodies = ReviewBodies(limits)
    app = FastAPI(title="GPU Dev Server: admission webhook", docs_url=None, redoc_url=None, openapi_url=None)

    for path, asked in reviewers.items():
        app.post(path)(_answering(asked, condition, metrics, bodies, clients_are_known))

    @app.get("/health")
    async def health() -> Response:
        return _closing(condition, JSONResponse({"service": SERVICE, "status": "healthy"}))

    @app.get("/ready")
    async def ready() -> Response:
        trouble = condition.trouble
        return _closing(condition, JSONResponse({"status": trouble or "ready"}, 503 if trouble else 200))

    @app.get("/metrics")
    async def exposition() -> Response:
        return _closing(condition, Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8"))

    return app


def _answering(
    reviewers: Sequence[PodReviewer],
    condition: WebhookCondition,
    metrics: WebhookMetrics,
    bodies: ReviewBodies,
    clients_are_known: bool,
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        started = perf_counter()
        outcome: Outcome = "error"
        try:
            if clients_are_known and "tls" not in request.scope.get("extensions", {}):
                outcome = "stranger"
                return _closing(condition, PlainTextResponse(_STRANGER, 403))
            async with bodies.of(request) as body:
                question = read_question(body)
                verdict, outcome = await _verdict(question, reviewers)
                written = written_answer(question.uid, verdict)
            return _closing(condition, Response(written, media_type="application/json"))
        except BadReviewError as problem:
            outcome = "bad_request"
            return _closing(condition, PlainTextResponse(f"{problem}\n", 400))
        except RefusedReviewBodyError as problem:
            outcome = "busy" if problem.busy else "bad_request"
            refusal = PlainTextResponse(f"{problem}\n", problem.status)
            if problem.busy:
                refusal.headers["Retry-After"] = str(RETRY_S)  # API servers do so by themselves
            if problem.late:
                refusal.headers["Connection"] = "close"
            return _closing(condition, refusal)
        finally:
            metrics.review(outcome, perf_counter() - started)

    return answer


async def _verdict(question: ReviewQuestion, reviewers: Sequence[PodReviewer]) -> tuple[Verdict, Outcome]:
    if question.review is None:
        return Untouched(("only pods are reviewed here; correct the webhook's rules",)), "not_a_pod"
    verdict = await review_pod(question.review, reviewers)
    match verdict:
        case Denied():
            _log.info("pod_denied", reason=verdict.reason, **_review_fields(question.review))
            return verdict, "denied"
        case Patched():
            for sentence in verdict.log:
                _log.info(sentence, **_review_fields(question.review))
            return verdict, "patched"
        case Untouched():
            return verdict, "untouched"
        case _:
            assert_never(verdict)


def _review_fields(review: PodReview) -> dict[str, object]:
    about: dict[str, object] = {"namespace": review.namespace}
    return about | {"dry_run": True} if review.dry_run else about


def _closing(condition: WebhookCondition, response: Response) -> Response:
    """While draining, each answer is its connection's last: what comes next is asked of another replica."""
    if condition.draining:
        response.headers["Connection"] = "close"
    return response

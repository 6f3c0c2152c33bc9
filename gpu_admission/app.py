"""The application: questions of schedulers, and the state of the process."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from logging import DEBUG
from typing import Protocol, TypeVar

import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gpu_admission import kube_scheduler, volcano
from gpu_admission.bodies import SMALL_BYTES, QuestionBodies
from gpu_admission.metrics import Call, CallOutcome, ExtenderMetrics
from gpu_admission.questions import Answer, ExtenderCondition, QuestionRoute
from gpu_admission.version import versions
from pod_scheduling.ports.extender import Extender
from pod_scheduling.ports.pod_binding import BindRefusedError
from pod_scheduling.runtime.settings.admission import VolcanoShape

SERVICE = "gpu-admission"
_log = structlog.get_logger(__name__)
T = TypeVar("T")


class Answering(Protocol):
    """The extender and its state."""

    @property
    def extender(self) -> Extender:
        """The extender that answers."""

    def ready(self) -> bool:
        """Whether it is ready for schedulers."""

    def problems(self) -> list[str]:
        """Problems that do not keep it from answering, in sentences."""

    def numbers(self) -> Mapping[str, float]:
        """Counters (`…_total`) and gauges, by name without a prefix."""


class App:
    """The routes and what they share; `questions` answers schedulers, by path."""

    def __init__(
        self,
        running: Answering,
        condition: ExtenderCondition,
        metrics: ExtenderMetrics,
        bodies: QuestionBodies,
        shape: VolcanoShape,
    ) -> None:
        self._running = running
        self._condition = condition
        self._metrics = metrics
        self._shape = shape
        self._tells_all = _log.is_enabled_for(DEBUG)
        self._args = kube_scheduler.ArgsReader()

        def route(call: Call, answer: Callable[[bytes], Awaitable[Answer]], problem: Callable[[str], bytes]) -> ASGIApp:
            return QuestionRoute(call, answer, problem, bodies, metrics, condition)

        filter_error, error = kube_scheduler.written_filter_error, kube_scheduler.written_binding
        volcano_error = volcano.written_error
        self.questions = {
            "/scheduler/predicates": route(Call.FILTER, self._filter, filter_error),
            "/scheduler/priorities": route(Call.PRIORITIZE, self._prioritize, error),
            "/scheduler/bind": route(Call.BIND, self._bind, error),
            "/scheduler/vpredicates": route(Call.VOLCANO_PREDICATE, self._volcano_predicate, volcano_error),
            "/scheduler/vprioritize": route(Call.VOLCANO_PRIORITIZE, self._volcano_prioritize, volcano_error),
            "/scheduler/vallocate": route(Call.VOLCANO_ALLOCATE, self._volcano_allocate, volcano_error),
            "/scheduler/vdeallocate": route(Call.VOLCANO_DEALLOCATE, self._volcano_deallocate, volcano_error),
        }

    def asgi(self) -> ASGIApp:
        told = {
            "/version": self._version,
            "/health": self._health,
            "/ready": self._ready,
            "/metrics": self._exposition,
        }
        anything = Starlette(
            routes=[
                *(Route(path, endpoint, methods=["POST"]) for path, endpoint in self.questions.items()),
                *(Route(path, endpoint, methods=["GET"]) for path, endpoint in told.items()),
            ],
            exception_handlers={404: _not_found, 405: _wrong_method},
        )

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            question = self.questions.get(scope["path"]) if scope["method"] == "POST" else None
            await (question or anything)(scope, receive, send)

        return app

    def metrics_alone(self) -> ASGIApp:
        """The ASGI application for an address that only Prometheus needs."""
        return Starlette(routes=[Route("/metrics", self._exposition, methods=["GET"])])

    # --- What schedulers ask.

    async def _filter(self, body: bytes) -> Answer:
        args = await _read(self._args.read, body)
        await self._running.extender.turn()
        filtered = self._running.extender.choose(args.pod, args.nodes)
        if self._tells_all:
            _log.debug("filtered", asked=len(args.nodes), fitting=len(filtered.fitting), **_about(args.pod))
        written = kube_scheduler.written_filter(args, filtered)
        return written, CallOutcome.ANSWERED if filtered.fitting or not args.nodes else CallOutcome.REFUSED

    async def _prioritize(self, body: bytes) -> Answer:
        args = await _read(self._args.read, body)
        scores = self._running.extender.prioritize(args.pod, args.nodes)
        return kube_scheduler.written_priorities(args.nodes, scores), CallOutcome.ANSWERED

    async def _bind(self, body: bytes) -> Answer:
        binding = await _read(kube_scheduler.read_binding, body)
        try:
            await self._running.extender.bind(binding)
        except BindRefusedError as refusal:
            about = {"namespace": binding.namespace, "pod": binding.name, "node": binding.node}
            _log.info("binding_refused", reason=str(refusal), **about)
            return kube_scheduler.written_binding(str(refusal)), CallOutcome.REFUSED
        return kube_scheduler.written_binding(), CallOutcome.ANSWERED

    async def _volcano_predicate(self, body: bytes) -> Answer:
        asked = await _read(volcano.read_predicate, body)
        filtered = self._running.extender.filter(asked.pod, (asked.node,))
        written = volcano.written_predicate(asked, filtered, self._shape)
        return written, CallOutcome.ANSWERED if filtered.fitting else CallOutcome.REFUSED

    async def _volcano_prioritize(self, body: bytes) -> Answer:
        asked = await _read(volcano.read_prioritize, body)
        scores = self._running.extender.prioritize(asked.pod, asked.nodes)
        return volcano.written_scores(asked.nodes, scores), CallOutcome.ANSWERED

    async def _volcano_allocate(self, body: bytes) -> Answer:
        asked = await _read(volcano.read_allocation, body)
        reason = self._running.extender.allocate(asked.pod, asked.node, pipelined=asked.pipelined)
        return volcano.written_allocation(reason), CallOutcome.ANSWERED if reason is None else CallOutcome.REFUSED

    async def _volcano_deallocate(self, body: bytes) -> Answer:
        asked = await _read(volcano.read_allocation, body)
        self._running.extender.deallocate(asked.pod, waits=asked.waits)
        return volcano.written_allocation(None), CallOutcome.ANSWERED

    # --- How the process is.

    async def _version(self, _request: Request) -> Response:
        return self._closing(JSONResponse(versions()))

    async def _health(self, _request: Request) -> Response:
        """A process whose event loop hangs does not answer; to end one that has a problem would not mend it."""
        problems = self._running.problems()
        status = "degraded" if problems else "healthy"
        return self._closing(JSONResponse({"service": SERVICE, "status": status, "problems": problems}))

    async def _ready(self, _request: Request) -> Response:
        if self._condition.draining:
            return self._closing(JSONResponse({"status": "draining"}, 503))
        why = self._running.extender.silence
        if why is not None:
            return self._closing(JSONResponse({"status": "not ready", "why": why}, 503))
        ready = self._running.ready()
        return self._closing(JSONResponse({"status": "ready" if ready else "standing by"}, 200 if ready else 503))

    async def _exposition(self, _request: Request) -> Response:
        return self._closing(Response(self._metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8"))

    def _closing(self, response: Response) -> Response:
        if self._condition.draining:
            response.headers["Connection"] = "close"
        return response


async def _read(read: Callable[[bytes], T], body: bytes) -> T:
    """Read large bodies in a thread, so that other answers need not wait for them."""
    return read(body) if len(body) <= SMALL_BYTES else await asyncio.to_thread(read, body)


def _about(pod: object) -> dict[str, object]:
    metadata = pod.get("metadata") if isinstance(pod, dict) else None
    found = metadata if isinstance(metadata, dict) else {}
    return {"namespace": found.get("namespace"), "pod": found.get("name")}


async def _not_found(_request: Request, _error: Exception) -> Response:
    told = (
        "there is nothing here; schedulers ask below /scheduler: predicates, priorities, bind, vpredicates, "
        "vprioritize, vallocate, vdeallocate"
    )
    return JSONResponse({"Error": told}, 404)


async def _wrong_method(_request: Request, error: Exception) -> Response:
    headers = getattr(error, "headers", None)
    return JSONResponse({"Error": "schedulers' questions come by POST, all else by GET"}, 405, headers=headers)

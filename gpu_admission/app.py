"""The application: what schedulers ask, and how the process is."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Protocol, TypeVar

import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gpu_admission import kube_scheduler, volcano
from gpu_admission.bodies import SMALL_BYTES, Bodies, RefusedBodyError
from gpu_admission.json_walk import BadJsonError
from gpu_admission.metrics import Call, Metrics, Outcome
from gpu_admission.version import versions
from reservation_core.ports.extender import BindRefusedError, Extender, NotSyncedError
from reservation_core.runtime.settings_admission import VolcanoShape

SERVICE = "gpu-admission"
_log = structlog.get_logger(__name__)
T = TypeVar("T")
Answer = tuple[bytes, Outcome]


class Answering(Protocol):
    """What answers, and how it is."""

    @property
    def extender(self) -> Extender:
        """Who is asked."""

    def ready(self) -> bool:
        """Whether schedulers may be sent here."""

    def problems(self) -> list[str]:
        """Sentences about what is wrong and does not keep it from answering."""

    def numbers(self) -> Mapping[str, float]:
        """Counters (`…_total`) and gauges, by name without a prefix."""


class Condition:
    """How the process is. `draining`: it is about to end, and is not to be sent anything new."""

    def __init__(self) -> None:
        self.draining = False


class App:
    """The routes and what they share."""

    def __init__(
        self, running: Answering, condition: Condition, metrics: Metrics, bodies: Bodies, shape: VolcanoShape
    ) -> None:
        self._running = running
        self._condition = condition
        self._metrics = metrics
        self._bodies = bodies
        self._shape = shape

    def asgi(self) -> Starlette:
        """The ASGI application."""
        kube, others = kube_scheduler.written_filter_error, volcano.written_error
        asked = [
            ("/scheduler/predicates", self._asked(Call.FILTER, self._filter, kube)),
            ("/scheduler/priorities", self._asked(Call.PRIORITIZE, self._prioritize, kube_scheduler.written_binding)),
            ("/scheduler/bind", self._asked(Call.BIND, self._bind, kube_scheduler.written_binding)),
            ("/scheduler/vpredicates", self._asked(Call.VOLCANO_PREDICATE, self._volcano_predicate, others)),
            ("/scheduler/vprioritize", self._asked(Call.VOLCANO_PRIORITIZE, self._volcano_prioritize, others)),
        ]
        told = [
            ("/version", self._version),
            ("/health", self._health),
            ("/ready", self._ready),
            ("/metrics", self._exposition),
        ]
        return Starlette(
            routes=[
                *(Route(path, endpoint, methods=["POST"]) for path, endpoint in asked),
                *(Route(path, endpoint, methods=["GET"]) for path, endpoint in told),
            ],
            exception_handlers={404: _not_found, 405: _wrong_method},
        )

    # --- What schedulers ask.

    async def _filter(self, body: bytes) -> Answer:
        args = await _read(kube_scheduler.read_args, body)
        await self._running.extender.turn()
        filtered = self._running.extender.filter(args.pod, args.nodes)
        _log.debug("filtered", asked=len(args.nodes), fitting=len(filtered.fitting), **_about(args.pod))
        written = kube_scheduler.written_filter(args, filtered)
        return written, Outcome.ANSWERED if filtered.fitting or not args.nodes else Outcome.REFUSED

    async def _prioritize(self, body: bytes) -> Answer:
        args = await _read(kube_scheduler.read_args, body)
        scores = self._running.extender.prioritize(args.pod, args.nodes)
        return kube_scheduler.written_priorities(args.nodes, scores), Outcome.ANSWERED

    async def _bind(self, body: bytes) -> Answer:
        binding = await _read(kube_scheduler.read_binding, body)
        try:
            await self._running.extender.bind(binding)
        except BindRefusedError as refusal:
            about = {"namespace": binding.namespace, "pod": binding.name, "node": binding.node}
            _log.info("binding_refused", reason=str(refusal), **about)
            return kube_scheduler.written_binding(str(refusal)), Outcome.REFUSED
        return kube_scheduler.written_binding(), Outcome.ANSWERED

    async def _volcano_predicate(self, body: bytes) -> Answer:
        asked = await _read(volcano.read_predicate, body)
        filtered = self._running.extender.filter(asked.pod, (asked.node,))
        written = volcano.written_predicate(asked, filtered, self._shape)
        return written, Outcome.ANSWERED if filtered.fitting else Outcome.REFUSED

    async def _volcano_prioritize(self, body: bytes) -> Answer:
        asked = await _read(volcano.read_prioritize, body)
        scores = self._running.extender.prioritize(asked.pod, asked.nodes)
        return volcano.written_scores(asked.nodes, scores), Outcome.ANSWERED

    def _asked(
        self, call: Call, answer: Callable[[bytes], Awaitable[Answer]], told: Callable[[str], bytes]
    ) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint. Where there is no answer, the problem goes out as the asking scheduler's type has it."""

        async def endpoint(request: Request) -> Response:
            started = perf_counter()
            outcome = Outcome.ERROR
            status, close = 200, False
            try:
                async with self._bodies.of(request) as body:
                    content, outcome = await answer(body)
            except BadJsonError as problem:
                status, outcome, content = 400, Outcome.BAD_REQUEST, told(str(problem))
            except RefusedBodyError as problem:
                status, outcome, close, content = problem.status, Outcome.BAD_REQUEST, True, told(str(problem))
            except NotSyncedError as problem:
                status, outcome, content = _status_of_silence(call), Outcome.NOT_SYNCED, told(str(problem))
            except Exception:  # noqa: BLE001 - the boundary: it is in the log, and what went wrong is nobody's business
                _log.exception("call_failed", call=call.value)
                status, content = 500, told("something went wrong in gpu-admission; its log says what")
            finally:
                self._metrics.called(call, outcome, perf_counter() - started)
            return self._closing(Response(content, status, media_type="application/json"), close=close)

        return endpoint

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
            trouble = "draining"
        elif not self._running.extender.synced:
            trouble = "reading the cluster"
        else:
            trouble = "" if self._running.ready() else "standing by"
        return self._closing(JSONResponse({"status": trouble or "ready"}, 503 if trouble else 200))

    async def _exposition(self, _request: Request) -> Response:
        return self._closing(Response(self._metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8"))

    def _closing(self, response: Response, *, close: bool = False) -> Response:
        """While draining, each answer is its connection's last: what comes next is asked of another replica."""
        if close or self._condition.draining:
            response.headers["Connection"] = "close"
        return response


async def _read(read: Callable[[bytes], T], body: bytes) -> T:
    """What is large is read in a thread, that others' answers need not wait for it."""
    return read(body) if len(body) <= SMALL_BYTES else await asyncio.to_thread(read, body)


def _status_of_silence(call: Call) -> int:
    """The status of an answer that nothing can be said now.

    kube-scheduler shows its user the text of an `Error`, and of any other status only its number; either way it asks
    again. What has no room for a text is told by the status alone.
    """
    return 200 if call in (Call.FILTER, Call.BIND) else 503


def _about(pod: object) -> dict[str, object]:
    metadata = pod.get("metadata") if isinstance(pod, dict) else None
    found = metadata if isinstance(metadata, dict) else {}
    return {"namespace": found.get("namespace"), "pod": found.get("name")}


async def _not_found(_request: Request, _error: Exception) -> Response:
    told = (
        "there is nothing here; schedulers ask below /scheduler: predicates, priorities, bind, vpredicates, vprioritize"
    )
    return JSONResponse({"Error": told}, 404)


async def _wrong_method(_request: Request, error: Exception) -> Response:
    headers = getattr(error, "headers", None)
    return JSONResponse({"Error": "schedulers' questions come by POST, all else by GET"}, 405, headers=headers)

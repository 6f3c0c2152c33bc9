"""Health and metrics of programs without an API."""

import asyncio
from collections.abc import Sequence

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.http.serving import open_socket, serve_beside
from reservation_core.runtime.loops.loop_metrics import LoopCollector
from reservation_core.runtime.loops.loops import PATIENCE_S, Loops
from reservation_core.runtime.settings.http import HttpSettings

_ANSWER_S = 3


def create_app(uow_factory: UnitOfWorkFactory, loops: Loops, collectors: Sequence[Collector] = ()) -> FastAPI:
    """The ASGI application for the process's `loops` and further `collectors`."""
    app = FastAPI(title="GPU Dev Server: health", docs_url=None, redoc_url=None, openapi_url=None)
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    for collector in (LoopCollector(loops), *collectors):
        registry.register(collector)

    @app.get("/healthz")
    async def healthz() -> Response:
        """A process with a blocked event loop does not answer."""
        return PlainTextResponse("alive\n")

    @app.get("/readyz")
    async def readyz() -> Response:
        """Ready while the database answers and no loop has failed for PATIENCE_S; failing loops are named.

        Standby processes are ready, too.
        """
        failing = [str(loop) for loop in loops.failing()]
        try:
            async with asyncio.timeout(_ANSWER_S), uow_factory() as uow:
                await uow.identities.users(after=None, limit=1)
        except (DatabaseUnavailableError, TimeoutError):
            return _lines("The database does not answer.", *failing, status=503)
        if loops.failing(PATIENCE_S):
            return _lines(f"A loop has failed for more than {PATIENCE_S:g} s.", *failing, status=503)
        return _lines("ready", *failing)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return app


def _lines(*lines: str, status: int = 200) -> Response:
    return PlainTextResponse("".join(f"{line}\n" for line in lines), status)


async def serve_health(
    uow_factory: UnitOfWorkFactory, loops: Loops, listen: str, http: HttpSettings, collectors: Sequence[Collector] = ()
) -> None:
    """Serve until cancelled. Raises ListenError."""
    app = create_app(uow_factory, loops, collectors)
    await serve_beside(app, open_socket(listen, "GPU_DEV_HEALTH_LISTEN"), "health", http)

"""What a program without an API answers about itself, for those who watch over its process."""

import asyncio

import structlog
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse, Response

from reservation_core.ports.transactions import DatabaseUnavailableError, UnitOfWorkFactory
from reservation_core.runtime.serving import QuietServer, address_of, open_socket, quiet_config

_PATIENCE_S = 3
_STOP_PATIENCE_S = 2
_log = structlog.get_logger(__name__)


def create_app(uow_factory: UnitOfWorkFactory) -> FastAPI:
    """The ASGI application."""
    app = FastAPI(title="GPU Dev Server: health", docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/healthz")
    async def healthz() -> Response:
        """A process whose event loop hangs does not answer; one of whose parts has failed ends."""
        return PlainTextResponse("alive\n")

    @app.get("/readyz")
    async def readyz() -> Response:
        """Ready while the database answers; who leads does not matter: one that stands by is as ready."""
        try:
            async with asyncio.timeout(_PATIENCE_S), uow_factory() as uow:
                await uow.identities.users(after=None, limit=1)
        except (DatabaseUnavailableError, TimeoutError):
            return PlainTextResponse("The database does not answer.\n", 503)
        return PlainTextResponse("ready\n")

    return app


async def serve_health(uow_factory: UnitOfWorkFactory, listen: str) -> None:
    """Answer until cancelled. Raises ListenError."""
    opened = open_socket(listen, "GPU_DEV_HEALTH_LISTEN")
    try:
        config = quiet_config(create_app(uow_factory), stop_patience_s=_STOP_PATIENCE_S, lifespan="off")
        await QuietServer(config, lambda: _log.info("health_listening", address=address_of(opened))).serve([opened])
    finally:
        opened.close()

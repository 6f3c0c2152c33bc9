"""Serving the application with uvicorn, alone or inside another asyncio program."""

import asyncio
from collections.abc import Callable

import structlog
from fastapi import FastAPI

from api_service.services import Services
from reservation_core.domain.client_addresses import trusted_networks
from reservation_core.runtime.bounded_protocol import ServerBounds
from reservation_core.runtime.garbage import calm_garbage_collector
from reservation_core.runtime.http_collector import HttpCollector
from reservation_core.runtime.serving import QuietServer, address_of, open_socket, quiet_config

STOP_PATIENCE_S = 10
IDLE_S = 120
"""How long a connection may be idle. It is for the caller's side to close it (programs do after 5 to 90 s, proxies
after 60): a server that is first closes some just as the next request comes, and that one fails without an answer."""
CONNECTIONS = 4096
_BACKLOG = 2048
_log = structlog.get_logger(__name__)


async def serve(
    app: FastAPI,
    listen: str,
    *,
    stop: asyncio.Event,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until `stop` is set, then end in order: streams ended, requests answered, batches written.

    `ready` is called with the base URL once connections are accepted. Raises ListenError.
    """
    opened = open_socket(listen)
    config = quiet_config(
        app, stop_patience_s=STOP_PATIENCE_S, lifespan="on", backlog=_BACKLOG, timeout_keep_alive=IDLE_S
    )

    def tell_ready() -> None:
        address = address_of(opened)
        _log.info("api_listening", address=address)
        if ready is not None:
            ready(address)

    services: Services = app.state.services
    bounds = ServerBounds(services.settings.http.limits(CONNECTIONS))
    services.metrics.show(HttpCollector(bounds))
    server = QuietServer(config, tell_ready, bounds, proxies=trusted_networks(services.settings.trusted_proxies))
    calm_garbage_collector()

    async def stop_in_order() -> None:
        await stop.wait()
        services.wakeups.stop()
        server.should_exit = True

    stopping = asyncio.create_task(stop_in_order())
    try:
        await server.serve(sockets=[opened])
    finally:
        stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)
        opened.close()

"""Serving the application with uvicorn, alone or inside another asyncio program."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

import structlog
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from api_service.apps.hosts import AppsHost
from api_service.routes.operations import exposition
from api_service.services import Services
from reservation_core.domain.network.client_addresses import trusted_networks
from reservation_core.runtime.http.bounded_protocol import ServerBounds
from reservation_core.runtime.http.collector import HttpCollector
from reservation_core.runtime.http.serving import QuietServer, address_of, open_socket, quiet_config, serve_beside
from reservation_core.runtime.http.serving_certificate import ServingCertificate
from reservation_core.runtime.processes.companions import beside
from reservation_core.runtime.processes.garbage import calm_garbage_collector
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.settings.error import SettingsError
from reservation_core.runtime.ssh.metrics import SshCollector

STOP_PATIENCE_S = 10
IDLE_S = 120
"""How long a connection may be idle. Clients should close it first (programs do after 5 to 90 s, proxies after 60): if
the server does, it closes some just as the next request comes, which then fails without an answer."""
CONNECTIONS = 4096
_BACKLOG = 2048
_CERTIFICATE_LOOK_S = 1.0
_log = structlog.get_logger(__name__)


async def serve(
    app: FastAPI,
    listen: str,
    *,
    stop: asyncio.Event,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until `stop` is set, then end in order: streams ended, requests answered, batches written.

    `ready` is called with the base URL once connections are accepted. Raises ListenError, and SettingsError for a
    certificate that can't be shown.
    """
    services: Services = app.state.services
    settings = services.settings
    certificate = _certificate(settings, services)
    opened = open_socket(listen)
    config = quiet_config(
        app,
        stop_patience_s=STOP_PATIENCE_S,
        lifespan="on",
        backlog=_BACKLOG,
        timeout_keep_alive=IDLE_S,
        websockets=True,
        **certificate.shown() if certificate is not None else {},
    )

    def report_ready() -> None:
        address = address_of(opened, "http" if certificate is None else "https")
        _log.info("api_listening", address=address)
        if ready is not None:
            ready(address)

    bounds = ServerBounds(settings.http.limits(CONNECTIONS))
    services.metrics.show(HttpCollector(bounds))
    services.metrics.show(SshCollector(services.runtime.ssh))
    proxies = trusted_networks(settings.trusted_proxies)
    server = QuietServer(config, report_ready, bounds, proxies=proxies, tunnels=AppsHost.of(settings).takes)
    calm_garbage_collector()

    async def stop_in_order() -> None:
        await stop.wait()
        services.wakeups.stop()
        services.connections.stop()
        server.should_exit = True

    stopping = asyncio.create_task(stop_in_order())
    try:
        async with AsyncExitStack() as running:
            if certificate is not None:
                looking = services.runtime.loops["certificate"].keep(partial(certificate.watch, _CERTIFICATE_LOOK_S))
                await running.enter_async_context(beside(looking, name="certificate"))
            if settings.metrics_listen is not None:
                at = open_socket(settings.metrics_listen, "GPU_DEV_METRICS_LISTEN")
                answering = serve_beside(_metrics_alone(services), at, "metrics", settings.http)
                await running.enter_async_context(beside(answering, name="metrics"))
            await server.serve(sockets=[opened])
    finally:
        stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)
        opened.close()


def _certificate(settings: ApiSettings, services: Services) -> ServingCertificate | None:
    if settings.tls_cert is None and settings.tls_key is None:
        return None
    if settings.tls_cert is None or settings.tls_key is None:
        raise SettingsError("GPU_DEV_TLS_CERT and GPU_DEV_TLS_KEY belong together: set both, or neither.")
    ends = services.metrics.http.set_certificate_end
    certificate = ServingCertificate(settings.tls_cert, settings.tls_key, lambda at: ends(at.timestamp()))
    certificate.reload()
    if not certificate.loaded:
        raise SettingsError(
            f"The server can't show the certificate of {settings.tls_cert} (GPU_DEV_TLS_CERT) with the key of"
            f" {settings.tls_key} (GPU_DEV_TLS_KEY): the log says why. Both are PEM, and the key has no password."
        )
    return certificate


def _metrics_alone(services: Services) -> Starlette:
    async def metrics(_request: Request) -> Response:
        return await exposition(services)

    return Starlette(routes=[Route("/metrics", metrics)])

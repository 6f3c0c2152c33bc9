"""`python -m admission_webhook serve`: answers the API server over TLS, until SIGTERM or SIGINT."""

import argparse
import asyncio
import socket
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

import structlog
import uvicorn
from fastapi import FastAPI

from admission_webhook.app import WebhookCondition, create_app
from admission_webhook.bodies import BodyLimits
from admission_webhook.metrics import WebhookMetrics
from pod_scheduling.ports.reviewers import PodReviewer
from pod_scheduling.runtime.settings.webhook import WebhookSettings
from pod_scheduling.runtime.webhook_reviewers import open_reviewers
from reservation_core.runtime.http.bounded_protocol import ServerBounds
from reservation_core.runtime.http.collector import HttpCollector
from reservation_core.runtime.http.serving import QuietServer, address_of, open_socket, quiet_config
from reservation_core.runtime.http.serving_certificate import ServingCertificate
from reservation_core.runtime.processes.companions import beside
from reservation_core.runtime.processes.garbage import calm_garbage_collector
from reservation_core.runtime.processes.programs import run_with_settings
from reservation_core.runtime.processes.shutdown import stop_on_signals

PROGRAM = "admission_webhook serve"
SETTINGS = WebhookSettings
STOP_PATIENCE_S = 10
IDLE_S = 120
"""How long a connection may be idle. API servers close theirs after 90 s: a server that is first may close one just as
a review comes, which then fails."""
CONNECTIONS = 1024
_BACKLOG = 2048
_log = structlog.get_logger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `serve`."""
    parser.add_argument("--listen", default="0.0.0.0:8443", metavar="HOST:PORT", help="where (0.0.0.0:8443)")
    parser.add_argument("--tls-cert", type=Path, required=True, metavar="FILE", help="PEM: the certificate, its chain")
    parser.add_argument("--tls-key", type=Path, required=True, metavar="FILE", help="PEM: its key, without a password")
    parser.add_argument(
        "--client-ca",
        type=Path,
        metavar="FILE",
        help="PEM: who signs the API server's certificate for webhooks. With it, nobody else is answered about pods",
    )


def run(_parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> int:
    """Serve until a signal comes; returns the exit code."""
    return run_with_settings(PROGRAM, WebhookSettings, partial(_serve, chosen))


async def _serve(chosen: argparse.Namespace, settings: WebhookSettings) -> None:
    stop = stop_on_signals()
    metrics = WebhookMetrics()
    opened = open_socket(chosen.listen, "--listen")
    try:
        async with open_reviewers(settings, metrics, metrics.loops) as reviewers:
            await serve(reviewers, metrics, opened, (chosen.tls_cert, chosen.tls_key, chosen.client_ca), settings, stop)
    finally:
        opened.close()


async def serve(
    reviewers: Mapping[str, Sequence[PodReviewer]],
    metrics: WebhookMetrics,
    opened: socket.socket,
    files: tuple[Path, Path, Path | None],
    settings: WebhookSettings,
    stop: asyncio.Event,
) -> None:
    """Serve on a listening socket until `stop` is set; `files` are the certificate, its key, and who signs clients'.
    Reviewers by path.

    After `stop` it says that it is not ready, and serves on for the time that API servers need to ask elsewhere.
    """
    condition = WebhookCondition()

    def taken(ends_at: datetime) -> None:
        condition.certificate = True
        metrics.certificate_ends(ends_at.timestamp())

    shown, key, client_authority = files
    certificate = ServingCertificate(shown, key, taken, client_authority)
    certificate.reload()
    chosen = settings.webhook
    limits = BodyLimits(chosen.max_body_bytes, chosen.max_bytes_in_flight, patience_s=chosen.body_s)
    app = create_app(reviewers, condition, metrics, limits, clients_are_known=client_authority is not None)
    bounds = ServerBounds(settings.http.limits(CONNECTIONS))
    metrics.show(HttpCollector(bounds))
    server = QuietServer(
        _configured(app, certificate),
        lambda: _log.info("webhook_listening", address=address_of(opened, "https")),
        bounds,
    )
    calm_garbage_collector()

    async def stop_in_order() -> None:
        await stop.wait()
        condition.draining = True
        _log.info("webhook_draining", seconds=settings.webhook.drain_s)
        await asyncio.sleep(settings.webhook.drain_s)
        server.should_exit = True

    stopping = asyncio.create_task(stop_in_order())
    try:
        looking = metrics.loops.keep("certificate", partial(certificate.watch, settings.webhook.certificate_look_s))
        async with beside(looking, name="certificate"):
            await server.serve(sockets=[opened])
    finally:
        stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)


def _configured(app: FastAPI, certificate: ServingCertificate) -> uvicorn.Config:
    return quiet_config(
        app,
        stop_patience_s=STOP_PATIENCE_S,
        lifespan="off",
        backlog=_BACKLOG,
        timeout_keep_alive=IDLE_S,
        **certificate.shown(),
    )

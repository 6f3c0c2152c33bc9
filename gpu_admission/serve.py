"""Serving: the schedulers' address, with TLS or without, and the address for debugging."""

import asyncio
import socket
from contextlib import AsyncExitStack
from datetime import datetime
from functools import partial
from typing import Any

import structlog
import uvicorn

from gpu_admission.app import Answering, App
from gpu_admission.bodies import QuestionBodies
from gpu_admission.debug_app import create_debug_app
from gpu_admission.metrics import ExtenderMetrics
from gpu_admission.questions import ExtenderCondition
from pod_scheduling.runtime.extender import run_extender
from pod_scheduling.runtime.settings.admission import AdmissionRules, AdmissionSettings
from reservation_core.runtime.http.bounded_protocol import ServerBounds
from reservation_core.runtime.http.collector import HttpCollector
from reservation_core.runtime.http.serving import QuietServer, address_of, open_socket, quiet_config, serve_beside
from reservation_core.runtime.http.serving_certificate import ServingCertificate
from reservation_core.runtime.loops.loops import Loops
from reservation_core.runtime.processes.companions import beside
from reservation_core.runtime.processes.garbage import calm_garbage_collector
from reservation_core.runtime.settings.http import HttpSettings

_STOP_PATIENCE_S = 10
_BACKLOG = 2048
CONNECTIONS = 500
_DEBUG_CONNECTIONS = 16
_METRICS_ADDRESS = "GPU_DEV_ADMISSION__METRICS_ADDRESS"
_log = structlog.get_logger(__name__)


async def serve(settings: AdmissionSettings, stop: asyncio.Event) -> None:
    """Follow the cluster and answer until `stop` is set; then, not ready, for a while. Raises SettingsError."""
    rules = settings.admission
    async with AsyncExitStack() as closing:
        opened = _open(closing, rules.address, "--address")
        debugging = _open(closing, rules.debug_address, "--pprofAddress") if rules.debug_address else None
        measured = _open(closing, rules.metrics_address, _METRICS_ADDRESS) if rules.metrics_address else None
        running = await closing.enter_async_context(run_extender(settings))
        await answer(running, opened, debugging, rules, settings.http, stop, measured=measured)


async def answer(
    running: Answering,
    opened: socket.socket,
    debugging: socket.socket | None,
    rules: AdmissionRules,
    http: HttpSettings,
    stop: asyncio.Event,
    *,
    measured: socket.socket | None = None,
) -> None:
    """Answer schedulers on `opened`, profiles on `debugging` and Prometheus on `measured`, until `stop`."""
    condition, metrics = ExtenderCondition(), ExtenderMetrics(running.numbers, running.problems)
    bodies = QuestionBodies(rules.max_body_bytes, rules.max_bytes_in_flight, rules.body_s)
    app = App(running, condition, metrics, bodies, rules.volcano_shape)
    calm_garbage_collector()
    async with AsyncExitStack() as closing:
        secured: dict[str, Any] = {}
        if rules.tls_cert is not None and rules.tls_key is not None:
            certificate = ServingCertificate(
                rules.tls_cert, rules.tls_key, lambda ends_at: metrics.certificate_ends(_seconds(ends_at))
            )
            certificate.reload()
            secured = certificate.shown()
            looking = Loops().keep("certificate", partial(certificate.watch, rules.certificate_look_s))
            await closing.enter_async_context(beside(looking, name="certificate"))
        address = address_of(opened, "https" if secured else "http")
        # A whole request, its head included, must come within `body_s`.
        http = http.model_copy(update={"head_s": min(http.head_s, rules.body_s)})
        bounds = ServerBounds(http.limits(CONNECTIONS))
        metrics.show(HttpCollector(bounds))
        server = QuietServer(
            _configured(app.asgi(), rules, **secured),
            lambda: _log.info("listening", address=address),
            bounds,
        )
        if debugging is not None:
            shown = QuietServer(
                _configured(create_debug_app(stop), rules),
                lambda: _log.info("debug_listening", address=address_of(debugging)),
                ServerBounds(http.limits(_DEBUG_CONNECTIONS)),
            )
            await closing.enter_async_context(beside(shown.serve(sockets=[debugging]), name="debug"))
            closing.callback(setattr, shown, "should_exit", True)
        if measured is not None:
            shown_alone = serve_beside(app.metrics_alone(), measured, "metrics", http)
            await closing.enter_async_context(beside(shown_alone, name="metrics"))
        await closing.enter_async_context(beside(_stop(server, condition, rules.drain_s, stop), name="stop"))
        await server.serve(sockets=[opened])


async def _stop(server: QuietServer, condition: ExtenderCondition, drain_s: float, stop: asyncio.Event) -> None:
    await stop.wait()
    condition.draining = True
    _log.info("draining", seconds=drain_s)
    await asyncio.sleep(drain_s)
    server.should_exit = True


def _open(closing: AsyncExitStack, address: str, said_by: str) -> socket.socket:
    """`:3456` is every address of this machine, of both kinds, as in Go."""
    everywhere = "[::]" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104 - where it is asked for
    opened = open_socket(f"{everywhere}{address}" if address.startswith(":") else address, said_by)
    closing.callback(opened.close)
    return opened


def _configured(app: Any, rules: AdmissionRules, **more: Any) -> uvicorn.Config:
    return quiet_config(
        app,
        stop_patience_s=_STOP_PATIENCE_S,
        lifespan="off",
        backlog=_BACKLOG,
        timeout_keep_alive=rules.idle_s,
        **more,
    )


def _seconds(at: datetime) -> float:
    return at.timestamp()

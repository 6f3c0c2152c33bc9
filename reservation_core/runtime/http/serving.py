"""Serve HTTP in a program with its own event loop and signals: listening sockets and servers."""

import asyncio
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import structlog
import uvicorn
from starlette.types import ASGIApp

from reservation_core.domain.network.client_addresses import Network
from reservation_core.runtime.http.bounded_listener import BoundedListener
from reservation_core.runtime.http.bounded_protocol import BoundedProtocol, ServerBounds
from reservation_core.runtime.http.bounded_websocket import OPTIONS, BoundedWebSocket
from reservation_core.runtime.http.tunnels import TunnelProtocol
from reservation_core.runtime.settings.error import SettingsError
from reservation_core.runtime.settings.http import HttpSettings

_BESIDE_STOP_PATIENCE_S = 2
_BESIDE_CONNECTIONS = 64
_log = structlog.get_logger(__name__)


class ListenError(SettingsError):
    """A server can't listen on the address; the text says why and what to do."""


def quiet_config(app: Any, *, stop_patience_s: int, websockets: bool = False, **more: Any) -> uvicorn.Config:
    """The configuration of all our servers: own logs, no server header, no trust in proxy headers.

    `more` are further settings of uvicorn.
    """
    if websockets:
        more |= {"ws": BoundedWebSocket, **OPTIONS}
    return uvicorn.Config(
        app,
        http="httptools",
        **{"ws": "none", **more},
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=stop_patience_s,
    )


class QuietServer(uvicorn.Server):
    """A server that leaves signals to its program, reports when it is ready, and bounds its connections.

    Connections from `proxies` are bounded only in total. `tunnels` chooses upgrades that the application takes over.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        ready: Callable[[], None],
        bounds: ServerBounds,
        *,
        proxies: Sequence[Network] = (),
        tunnels: Callable[[Mapping[str, Any]], bool] = lambda _: False,
    ) -> None:
        super().__init__(config)
        self._ready = ready
        self._bounds = bounds
        self._proxies = proxies
        self._tunnels = tunnels

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers."""
        yield

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until stopped or cancelled, then close all connections."""
        try:
            await super().serve(sockets)
        finally:
            for listener in getattr(self, "servers", ()):
                listener.close()
            for connection in [*self.server_state.connections]:
                connection.transport.abort()
            await asyncio.sleep(0)  # lets the aborted connections close

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, then accept connections from the sockets and report that."""
        try:
            await super().startup([])
        except SystemExit as ended:
            # A failed application must not end a process with others.
            raise RuntimeError("The application could not start; its log says why.") from ended
        if not self.started:
            return
        listeners = [
            BoundedListener(opened, self._bounds, self._new_protocol, self.config.ssl, self._proxies)
            for opened in sockets or []
        ]
        for listener in listeners:
            listener.start(self.config.backlog)
        self.servers = listeners  # type: ignore[assignment]  # uvicorn calls close and wait_closed
        self._ready()

    def _new_protocol(self) -> BoundedProtocol:
        return TunnelProtocol(
            self._tunnels,
            self._bounds,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            _loop=asyncio.get_running_loop(),
        )


def open_socket(listen: str, said_by: str = "GPU_DEV_LISTEN") -> socket.socket:
    """Bind a socket to an address such as `127.0.0.1:8080` or `[::1]:0` (0: any free port). Raises ListenError.

    `said_by` is the setting or argument with the address.
    """
    host, separator, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not host or not port.isdecimal() or int(port) > 65535:
        raise ListenError(f"{said_by} must be host:port, such as 127.0.0.1:8080; it is {listen!r}.")
    try:
        family = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0][0]
        opened = socket.socket(family, socket.SOCK_STREAM)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            opened.bind((host, int(port)))
        except OSError:
            opened.close()
            raise
    except OSError as error:
        raise ListenError(
            f"Can't listen on {listen}: {error.strerror or error}. Choose another address with {said_by}, "
            "or end what listens there."
        ) from error
    return opened


def address_of(opened: socket.socket, scheme: str = "http") -> str:
    """The base URL of a listening socket."""
    host, port = opened.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if opened.family == socket.AF_INET6 else f"{scheme}://{host}:{port}"


async def serve_beside(app: ASGIApp, opened: socket.socket, name: str, http: HttpSettings) -> None:
    """Serve an application on its own port, without TLS, until cancelled. `name` is for the log."""
    try:
        config = quiet_config(app, stop_patience_s=_BESIDE_STOP_PATIENCE_S, lifespan="off")
        server = QuietServer(
            config,
            lambda: _log.info(f"{name}_listening", address=address_of(opened)),
            ServerBounds(http.limits(_BESIDE_CONNECTIONS)),
        )
        await server.serve([opened])
    finally:
        opened.close()

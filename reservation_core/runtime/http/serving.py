"""Serving HTTP inside a program that has its own event loop and its own signals: the listening socket, the server."""

import asyncio
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import structlog
import uvicorn
from starlette.types import ASGIApp

from reservation_core.domain.network.client_addresses import Network
from reservation_core.runtime.http.bounded_listener import BoundedListener
from reservation_core.runtime.http.bounded_protocol import BoundedProtocol, ServerBounds
from reservation_core.runtime.settings.error import SettingsError
from reservation_core.runtime.settings.http import HttpSettings

_BESIDE_STOP_PATIENCE_S = 2
_BESIDE_CONNECTIONS = 64
_log = structlog.get_logger(__name__)


class ListenError(SettingsError):
    """The address can't be listened on; the text says why and what to do."""


def quiet_config(app: Any, *, stop_patience_s: int, **more: Any) -> uvicorn.Config:
    """How every program of ours serves: it logs by itself, and says and believes nothing about who is in between.

    `more` are uvicorn's own settings.
    """
    return uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=stop_patience_s,
        **more,
    )


class QuietServer(uvicorn.Server):
    """Leaves signals to the program that it runs in, says when it accepts connections, and keeps them within bounds.

    `protocol` makes a connection of the bounds and of what uvicorn gives. Connections from `proxies` are bounded only
    in all.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        ready: Callable[[], None],
        bounds: ServerBounds,
        *,
        protocol: Callable[..., BoundedProtocol] = BoundedProtocol,
        proxies: Sequence[Network] = (),
    ) -> None:
        super().__init__(config)
        self._ready = ready
        self._bounds = bounds
        self._protocol = protocol
        self._proxies = proxies

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """No signal handlers."""
        yield

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until told to end, or cancelled: then nothing is accepted any more, and no connection stays open."""
        try:
            await super().serve(sockets)
        finally:
            for listener in getattr(self, "servers", ()):
                listener.close()
            for connection in [*self.server_state.connections]:
                connection.transport.abort()
            await asyncio.sleep(0)  # in which they are closed

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application; then accept connections from the sockets, and tell."""
        try:
            await super().startup([])
        except SystemExit as ended:
            # What goes wrong in one application ends no process that has others.
            raise RuntimeError("The application could not start; its log says why.") from ended
        if not self.started:
            return
        listeners = [
            BoundedListener(opened, self._bounds, self._new_protocol, self.config.ssl, self._proxies)
            for opened in sockets or []
        ]
        for listener in listeners:
            listener.start(self.config.backlog)
        self.servers = listeners  # type: ignore[assignment]  # they are closed, and their end is awaited
        self._ready()

    def _new_protocol(self) -> BoundedProtocol:
        return self._protocol(
            self._bounds,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            _loop=asyncio.get_running_loop(),
        )


def open_socket(listen: str, said_by: str = "GPU_DEV_LISTEN") -> socket.socket:
    """A listening address such as `127.0.0.1:8080` or `[::1]:0` (0: any free port). Raises ListenError.

    `said_by` is the setting or the argument that it came from.
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
    """Answer at a port of its own, without TLS, until cancelled; then close it. `name` says in the log what it is."""
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

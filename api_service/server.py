"""Serving the application with uvicorn, alone or inside another asyncio program."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
import uvicorn
from fastapi import FastAPI

from reservation_core.runtime.garbage import calm_garbage_collector
from reservation_core.runtime.settings_error import SettingsError

STOP_PATIENCE_S = 10
IDLE_S = 120
"""How long a connection may be idle. It is for the caller's side to close it (programs do after 5 to 90 s, proxies
after 60): a server that is first closes some just as the next request comes, and that one fails without an answer."""
_BACKLOG = 2048
_log = structlog.get_logger(__name__)


class ListenError(SettingsError):
    """The address can't be listened on; the text says why and what to do."""


class _Server(uvicorn.Server):
    """Leaves signals to the program that it runs in, and says when it accepts connections."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """No signal handlers."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As usual, and then tell."""
        await super().startup(sockets)
        if self.started:
            self._ready()


def open_socket(listen: str) -> socket.socket:
    """A listening address such as `127.0.0.1:8080` or `[::1]:0` (0: any free port). Raises ListenError."""
    host, separator, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not host or not port.isdecimal() or int(port) > 65535:
        raise ListenError(f"GPU_DEV_LISTEN must be host:port, such as 127.0.0.1:8080; it is {listen!r}.")
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
            f"Can't listen on {listen}: {error.strerror or error}. Choose another address with GPU_DEV_LISTEN, "
            "or end what listens there."
        ) from error
    return opened


def address_of(opened: socket.socket) -> str:
    """The base URL of a listening socket."""
    host, port = opened.getsockname()[:2]
    return f"http://[{host}]:{port}" if opened.family == socket.AF_INET6 else f"http://{host}:{port}"


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
    config = uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=STOP_PATIENCE_S,
    )

    def tell_ready() -> None:
        address = address_of(opened)
        _log.info("api_listening", address=address)
        if ready is not None:
            ready(address)

    server = _Server(config, tell_ready)
    calm_garbage_collector()

    async def stop_in_order() -> None:
        await stop.wait()
        app.state.services.wakeups.stop()
        server.should_exit = True

    stopping = asyncio.create_task(stop_in_order())
    try:
        await server.serve(sockets=[opened])
    finally:
        stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)
        opened.close()

"""Accepts clients of the SSH server on a port until the process is to end."""

import asyncio
import errno
import socket
from collections.abc import Callable

import structlog

from reservation_core.runtime.http.serving import open_socket
from reservation_core.runtime.processes.companions import beside
from reservation_core.runtime.sessions.connections import Connections
from reservation_core.runtime.settings.components import SessionSettings
from reservation_core.runtime.ssh.server import SshServer
from reservation_core.runtime.ssh.visits import GatewayConnection
from reservation_core.runtime.wiring import Runtime

_BACKLOG = 1024
_PAUSE_S = 0.1
_SHORT_OF = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_STOP_PATIENCE_S = 5.0
_log = structlog.get_logger(__name__)


async def run(
    runtime: Runtime,
    settings: SessionSettings,
    stop: asyncio.Event,
    ready: Callable[[str, int], None] | None = None,
) -> None:
    """Serve until `stop` is set; then end all connections in order. `ready` is called with the address.

    Raises ListenError.
    """
    if settings.ssh.listen is None:
        await stop.wait()
        return
    opened = open_socket(settings.ssh.listen, "GPU_DEV_SSH__LISTEN")
    connections = Connections(runtime.uow, runtime.clock, settings.connections_per_user)
    server = SshServer(runtime, settings.ssh, connections, runtime.ssh)
    try:
        host, port = opened.getsockname()[:2]
        loaded = asyncio.Event()

        async def load() -> None:
            await server.load(port)
            loaded.set()

        await runtime.loops["ssh_keys"].keep(load, stop=stop)
        if stop.is_set():
            return
        opened.setblocking(False)
        opened.listen(_BACKLOG)
        _log.info("ssh_listening", address=f"{host}:{port}")
        if ready is not None:
            ready(host, port)
        async with beside(connections.run(runtime.loops["ssh_connections"]), name="ssh connections"):
            async with beside(_accept(server, opened), name="ssh clients"):
                await stop.wait()
            await server.stop(_STOP_PATIENCE_S)
    finally:
        opened.close()


async def _accept(server: SshServer, opened: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    connecting: set[asyncio.Task[None]] = set()
    while True:
        try:
            accepted, peer = await loop.sock_accept(opened)
        except ConnectionAbortedError:
            continue
        except OSError as error:
            if error.errno not in _SHORT_OF:
                raise
            await asyncio.sleep(_PAUSE_S)
            continue
        connection = server.connection((peer[0], peer[1]))
        if connection is None:
            accepted.close()
            continue
        task = loop.create_task(_connect(server, connection, accepted))
        connecting.add(task)
        task.add_done_callback(connecting.discard)


async def _connect(server: SshServer, connection: GatewayConnection, accepted: socket.socket) -> None:
    try:
        await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, accepted)
    except OSError:
        server.forget(connection)
        accepted.close()

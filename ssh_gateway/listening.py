"""Accepts clients of the SSH server on a port until the process is to end."""

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from reservation_core.ports.sessions.ssh_keys import ServerKeyUnreadableError
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.http.serving import open_socket
from reservation_core.runtime.processes.companions import beside
from reservation_core.runtime.sessions.connections import Connections
from reservation_core.runtime.settings.components import SessionSettings
from reservation_core.runtime.ssh.door import SshDoor
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.sessions.server_keys import certificate_authority, host_key

if TYPE_CHECKING:
    from reservation_core.runtime.ssh.visits import GatewayConnection

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
    try:
        host, port = opened.getsockname()[:2]
        door = SshDoor(runtime, settings.ssh, connections, port)

        async def read_keys() -> None:
            """Make them if need be, and raise ServerKeyUnreadableError before a client comes."""
            async with runtime.uow() as uow:
                await host_key(uow, runtime.clock.now())
                await certificate_authority(uow, runtime.clock.now())

        await runtime.loops["ssh_keys"].keep(read_keys, stop=stop)
        if stop.is_set():
            return
        opened.setblocking(False)
        opened.listen(_BACKLOG)
        _log.info("ssh_listening", address=f"{host}:{port}")
        if ready is not None:
            ready(host, port)
        async with beside(connections.run(runtime.loops["ssh_connections"]), name="ssh connections"):
            async with beside(_accept(door, opened), name="ssh clients"):
                await stop.wait()
            await door.stop(_STOP_PATIENCE_S)
    finally:
        opened.close()


async def _accept(door: SshDoor, opened: socket.socket) -> None:
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
        try:
            connection = await door.connection((peer[0], peer[1]))
        except (DatabaseUnavailableError, ServerKeyUnreadableError) as error:
            _log.warning("ssh_client_refused", error=str(error))
            connection = None
        if connection is None:
            accepted.close()
            continue
        task = loop.create_task(_connect(door, connection, accepted))
        connecting.add(task)
        task.add_done_callback(connecting.discard)


async def _connect(door: SshDoor, connection: "GatewayConnection", accepted: socket.socket) -> None:
    try:
        await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, accepted)
    except OSError:
        door.forget(connection)
        accepted.close()

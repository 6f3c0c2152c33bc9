"""Accepts clients of the SSH server on a port until the process is to end."""

import asyncio
import errno
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial

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
            async with beside(_accept(door, opened, settings.ssh.handshakes), name="ssh clients"):
                await stop.wait()
            await door.stop(_STOP_PATIENCE_S)
    finally:
        opened.close()


async def _accept(door: SshDoor, opened: socket.socket, most: int) -> None:
    """Accept clients until cancelled. Further ones stay in the backlog while `most` are being connected."""
    loop = asyncio.get_running_loop()
    connecting: set[asyncio.Task[None]] = set()

    def end(task: asyncio.Task[None], accepted: socket.socket) -> None:
        connecting.discard(task)
        if task.cancelled():  # perhaps before its first step
            accepted.close()

    try:
        while True:
            if len(connecting) >= most:
                await asyncio.wait(connecting, return_when=asyncio.FIRST_COMPLETED)
            try:
                accepted, peer = await loop.sock_accept(opened)
            except ConnectionAbortedError:
                continue
            except OSError as error:
                if error.errno not in _SHORT_OF:
                    raise
                await asyncio.sleep(_PAUSE_S)
                continue
            task = loop.create_task(_connect(door, accepted, (peer[0], peer[1])), name="ssh client")
            connecting.add(task)
            task.add_done_callback(partial(end, accepted=accepted))
    finally:
        for task in connecting:
            task.cancel()
        if connecting:
            await asyncio.wait(connecting)


async def _connect(door: SshDoor, accepted: socket.socket, peer: tuple[str, int]) -> None:
    """Connect a client to the server, or close its socket."""
    try:
        with ExitStack() as unless_connected:
            unless_connected.callback(accepted.close)
            connection = await door.connection(peer)
            if connection is None:
                return
            unless_connected.callback(door.forget, connection)
            with suppress(OSError):  # the client has gone
                await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, accepted)
                unless_connected.pop_all()
    except (DatabaseUnavailableError, ServerKeyUnreadableError) as error:
        _log.warning("ssh_client_refused", error=str(error))
    except Exception as error:  # noqa: BLE001 - logged; other clients are not affected
        _log.exception("ssh_client_failed", error=type(error).__name__)

"""The way to the SSH server of a process, which is made when the first client comes."""

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING

from reservation_core.runtime.sessions.connections import Connections
from reservation_core.runtime.settings.ssh import SshSettings
from reservation_core.runtime.wiring import Runtime

if TYPE_CHECKING:
    from reservation_core.runtime.ssh.server import SshServer
    from reservation_core.runtime.ssh.visits import GatewayConnection


class SshDoor:
    """Makes the server when the first client comes. `port`: where the process listens itself."""

    def __init__(
        self, runtime: Runtime, settings: SshSettings, connections: Connections, port: int | None = None
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._connections = connections
        self._port = port
        self._server: SshServer | None = None
        self._making: asyncio.Task[SshServer] | None = None

    async def connection(self, peer: tuple[str, int]) -> "GatewayConnection | None":
        """A connection for a client from this address; None if there is no room.

        Raises DatabaseUnavailableError and ServerKeyUnreadableError, and others where the library can't be loaded.
        Clients that come while the server is made wait for the same attempt, and share its failure.
        """
        if self._server is None:
            if self._making is None:
                self._making = asyncio.create_task(self._make_server(), name="ssh server")
                self._making.add_done_callback(self._end_making)
            server = await asyncio.shield(self._making)  # others wait for it when this client goes
        else:
            server = self._server
        return server.connection(peer)

    def forget(self, connection: "GatewayConnection") -> None:
        """Give up a connection whose client went before it was connected."""
        if self._server is not None:
            self._server.forget(connection)

    async def stop(self, patience_s: float) -> None:
        """End all connections in order, and wait until they have ended."""
        self._connections.stop()
        if self._making is not None:
            self._making.cancel()
            await asyncio.wait([self._making])
        if self._server is not None:
            await self._server.stop(patience_s)

    async def _make_server(self) -> "SshServer":
        # Imported only here: the library takes a fifth of a second and 6 MB, which most processes do without.
        module = await asyncio.to_thread(import_module, "reservation_core.runtime.ssh.server")
        server: SshServer = module.SshServer(self._runtime, self._settings, self._connections, self._runtime.ssh)
        await server.load(self._port)
        return server

    def _end_making(self, made: "asyncio.Task[SshServer]") -> None:
        """Keep the server; after a failure the next client makes another."""
        self._making = None
        if not made.cancelled() and made.exception() is None:
            self._server = made.result()

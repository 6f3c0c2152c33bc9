"""The SSH server behind `/v1/ssh`."""

from typing import TYPE_CHECKING

from reservation_core.runtime.sessions.connections import Connections
from reservation_core.runtime.settings.ssh import SshSettings
from reservation_core.runtime.wiring import Runtime

if TYPE_CHECKING:
    from reservation_core.runtime.ssh.server import SshServer
    from reservation_core.runtime.ssh.visits import GatewayConnection


class SshDoor:
    """Makes the server when the first client comes."""

    def __init__(self, runtime: Runtime, settings: SshSettings, connections: Connections) -> None:
        self._runtime = runtime
        self._settings = settings
        self._connections = connections
        self._server: SshServer | None = None

    async def connection(self, peer: tuple[str, int]) -> "GatewayConnection | None":
        """A connection for a client from this address; None if there is no room.

        Raises DatabaseUnavailableError and ServerKeyUnreadableError.
        """
        if self._server is None:
            # Imported only here: the library takes a fifth of a second, which most API processes do without.
            from reservation_core.runtime.ssh.server import SshServer  # noqa: PLC0415

            self._server = SshServer(self._runtime, self._settings, self._connections, self._runtime.ssh)
        await self._server.load()
        return self._server.connection(peer)

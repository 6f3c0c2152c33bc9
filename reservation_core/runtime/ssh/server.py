"""The SSH server of a process: its keys, and a new connection for each client."""

import asyncio
from contextlib import suppress

import asyncssh
from asyncssh import SSHServerConnectionOptions, import_authorized_keys, import_private_key

from reservation_core.ports.sessions.ssh_keys import ServerKey
from reservation_core.runtime.sessions.connections import Connections
from reservation_core.runtime.settings.ssh import SshSettings
from reservation_core.runtime.ssh.counts import SshCounts
from reservation_core.runtime.ssh.key_checks import KeyChecks
from reservation_core.runtime.ssh.lobby import Lobby
from reservation_core.runtime.ssh.visits import PACKET_BYTES, WINDOW_BYTES, GatewayConnection, SshWorld, Visit
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.sessions.server_keys import certificate_authority, host_key

VERSION = "gpu-dev"
_KEEPALIVES = 3
# The library's own log names commands of users; `DEBUG` would show what is typed.
asyncssh.set_log_level("ERROR")


class SshServer:
    """Makes connections for clients. `load` must have been called before."""

    def __init__(self, runtime: Runtime, settings: SshSettings, connections: Connections, counts: SshCounts) -> None:
        self.counts = counts
        self.connections = connections
        self._runtime = runtime
        self._settings = settings
        self._lobby = Lobby(settings, counts)
        self._keys = KeyChecks(runtime.uow, runtime.clock, settings, counts)
        self._world: SshWorld | None = None

    async def load(self, port: int | None = None) -> None:
        """Read the server's keys from the database. `port`: where it listens itself.

        Raises DatabaseUnavailableError and ServerKeyUnreadableError.
        """
        now = self._runtime.clock.now()
        async with self._runtime.uow() as uow:
            host, authority = await host_key(uow, now), await certificate_authority(uow, now)
        self._world = SshWorld(
            uow=self._runtime.uow,
            connections=self.connections,
            pod_streams=self._runtime.pod_streams,
            keys=self._keys,
            lobby=self._lobby,
            counts=self.counts,
            settings=self._settings,
            options=_options(host, authority, self._settings),
            ports=frozenset() if port is None else frozenset({port}),
        )

    def connection(self, peer: tuple[str, int]) -> GatewayConnection | None:
        """A connection for a client from this address and port; None if there is no room."""
        assert self._world is not None  # noqa: S101 - see `load`
        if not self._lobby.make_room(peer[0]):
            return None
        return GatewayConnection(self._world, peer)

    def forget(self, connection: GatewayConnection) -> None:
        """Give up a connection whose client went before it was connected."""
        self._lobby.leave(connection, admitted=False)

    async def stop(self, patience_s: float) -> None:
        """End all connections in order, and wait until they have ended."""
        self.connections.stop()
        for client in [*self._lobby.clients]:
            if not client.busy:
                client.displace()
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._lobby.empty.wait()
        for client in [*self._lobby.clients]:
            client.displace()
        if self._lobby.tasks:
            await asyncio.wait([*self._lobby.tasks], timeout=patience_s)


def _options(host: ServerKey, authority: ServerKey, settings: SshSettings) -> SSHServerConnectionOptions:
    return SSHServerConnectionOptions(
        server_factory=Visit,
        server_version=VERSION,
        server_host_keys=[import_private_key(host.private_key)],
        # The user name is a job here, so principals say nothing: a certificate's id names its user.
        authorized_client_keys=import_authorized_keys(f'cert-authority,principals="*" {authority.public_key}'),
        x509_trusted_certs=None,
        host_based_auth=False,
        password_auth=False,
        kbdint_auth=False,
        gss_host=None,
        agent_forwarding=False,
        x11_forwarding=False,
        line_editor=False,
        encoding=None,
        compression_algs=None,  # a small packet could become a large one
        login_timeout=settings.handshake_s,
        keepalive_interval=settings.keepalive_s,
        keepalive_count_max=_KEEPALIVES,
        max_pktsize=PACKET_BYTES,
        window=WINDOW_BYTES,
    )

"""How many clients an SSH server has: in total, and while they authenticate, where strangers displace each other."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from reservation_core.domain.network.client_addresses import counted_source
from reservation_core.domain.network.connection_slots import ConnectionSlots, OpenConnection
from reservation_core.domain.network.http_limits import Refusal
from reservation_core.runtime.settings.ssh import SshSettings
from reservation_core.runtime.ssh.counts import SshCounts, SshRefusal

HANDSHAKE_BYTES = 256 * 1024
"""The most bytes that a client sends before it is authenticated."""


class Stranger(OpenConnection, Protocol):
    """A client that has not yet authenticated."""

    def displace(self) -> None:
        """Close the connection, to make room."""


class Lobby:
    """The clients of one server. `now` is a clock in seconds that never goes back."""

    def __init__(self, settings: SshSettings, counts: SshCounts, now: Callable[[], float] | None = None) -> None:
        self.clients: set[Stranger] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        """Work for clients, also after they have left."""
        self.empty = asyncio.Event()
        """Set while there are no clients."""
        self.empty.set()
        self._most = settings.max_connections
        self._counts = counts
        self._now = now or asyncio.get_running_loop().time
        self._strangers: ConnectionSlots[Stranger] = ConnectionSlots(
            settings.handshakes, max(1, settings.handshakes // 4)
        )

    def make_room(self, address: str) -> bool:
        """Whether one more client from an address fits; the stranger that is silent the longest may have to go."""
        if len(self.clients) >= self._most:
            self._counts.refused[SshRefusal.SERVER_FULL] += 1
            return False
        room = self._strangers.room(counted_source(address, ()), self._now())
        if isinstance(room, Refusal):
            full = SshRefusal.ADDRESS_FULL if room is Refusal.ADDRESS_FULL else SshRefusal.SERVER_FULL
            self._counts.refused[full] += 1
            return False
        if room.instead_of is not None:
            self._counts.refused[SshRefusal.DISPLACED] += 1
            room.instead_of.displace()
        return True

    def enter(self, client: Stranger, address: str) -> None:
        """Count a client, as a stranger."""
        self._counts.open += 1
        self.clients.add(client)
        self.empty.clear()
        self._strangers.enter(client, counted_source(address, ()))

    def admit(self, client: Stranger) -> None:
        """Note that a client has authenticated."""
        self._counts.authenticated += 1
        self._strangers.leave(client)

    def leave(self, client: Stranger, *, admitted: bool) -> None:
        """Note that a client's connection is closed; does nothing if it no longer counts."""
        if client not in self.clients:
            return
        self.clients.remove(client)
        if not self.clients:
            self.empty.set()
        self._counts.open -= 1
        self._strangers.leave(client)
        if not admitted:
            self._counts.refused[SshRefusal.HANDSHAKE] += 1

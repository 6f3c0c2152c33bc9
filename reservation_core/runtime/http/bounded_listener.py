"""Accept connections within a server's bounds.

Neither asyncio nor uvloop lets a server refuse connections, and both count a connection only after its TLS handshake.
So connections are accepted here, counted from the accept on, and then passed to the event loop.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress

from reservation_core.domain.network.client_addresses import Network, counted_source
from reservation_core.domain.network.http_limits import Refusal
from reservation_core.runtime.http.bounded_protocol import BoundedProtocol, ServerBounds

_AT_ONCE = 32
"""Connections accepted in one turn of the event loop."""

_PAUSE_S = 0.1
_TLS_CLOSING_S = 5.0
_SHORT_OF = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_READ_BYTES = 64 * 1024


class BoundedListener:
    """Accepts from a bound socket. `tls` is None for plain HTTP; addresses of `proxies` have no bound of their own."""

    def __init__(
        self,
        opened: socket.socket,
        bounds: ServerBounds,
        new_protocol: Callable[[], BoundedProtocol],
        tls: ssl.SSLContext | None,
        proxies: Sequence[Network],
    ) -> None:
        self._opened = opened
        self._bounds = bounds
        self._new_protocol = new_protocol
        self._tls = tls
        self._proxies = proxies
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[None]] = set()
        self._again: asyncio.TimerHandle | None = None

    def start(self, backlog: int) -> None:
        self._opened.setblocking(False)
        self._opened.listen(backlog)
        self._loop.add_reader(self._opened.fileno(), self._accept)

    def close(self) -> None:
        """Stop accepting, and cancel pending handshakes."""
        if self._again is not None:
            self._again.cancel()
        if self._opened.fileno() >= 0:
            self._loop.remove_reader(self._opened.fileno())
            self._opened.close()
        for task in self._connecting:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait for the end of cancelled handshakes."""
        if self._connecting:
            await asyncio.wait(self._connecting)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                accepted, peer = self._opened.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Without descriptors the connection waits in the kernel; otherwise it failed before the accept.
                if error.errno in _SHORT_OF:
                    self._bounds.refusals.add(Refusal.NO_DESCRIPTORS, None, self._loop.time())
                self._loop.remove_reader(self._opened.fileno())
                self._again = self._loop.call_later(_PAUSE_S, self._accept_again)
                return
            self._take(accepted, peer)

    def _accept_again(self) -> None:
        self._loop.add_reader(self._opened.fileno(), self._accept)

    def _take(self, accepted: socket.socket, peer: tuple[str, int]) -> None:
        slots, now = self._bounds.slots, self._loop.time()
        accepted.setblocking(False)
        source = counted_source(peer[0], self._proxies)
        room = slots.room(source, now)
        if isinstance(room, Refusal):
            self._refuse(accepted, peer, room)
            return
        if room.instead_of is not None:
            room.instead_of.displace()
        with suppress(OSError):  # a client that is gone shows at the first read
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        protocol = self._new_protocol()
        slots.enter(protocol, source)
        protocol.connecting = task = self._loop.create_task(self._connect(accepted, peer, protocol))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, accepted: socket.socket, peer: tuple[str, int], protocol: BoundedProtocol) -> None:
        try:
            if self._tls is None:
                await self._loop.connect_accepted_socket(lambda: protocol, accepted)
            else:
                await self._loop.connect_accepted_socket(
                    lambda: protocol,
                    accepted,
                    ssl=self._tls,
                    ssl_handshake_timeout=self._bounds.limits.head_s,
                    ssl_shutdown_timeout=_TLS_CLOSING_S,
                )
        except BaseException as error:
            self._bounds.slots.leave(protocol)
            if not isinstance(error, OSError):
                raise
            self._bounds.refusals.add(Refusal.HANDSHAKE, peer, self._loop.time())

    def _refuse(self, accepted: socket.socket, peer: tuple[str, int], refusal: Refusal) -> None:
        self._bounds.refusals.add(refusal, peer, self._loop.time())
        with accepted, suppress(OSError):
            if self._tls is None:  # TLS has no answer before a handshake
                accepted.send(self._bounds.answers[refusal])
                accepted.recv(_READ_BYTES)  # unread data would turn the close into a reset

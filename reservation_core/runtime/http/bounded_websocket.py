"""WebSockets on bounded connections: they keep their HTTP connection's slot, and live as long as their peer answers.

uvicorn's protocol would end a connection whose answer to a ping waits behind data that the application does not read
yet, as back-pressure makes it. Here TCP itself finds dead peers, and pings only keep proxies from closing.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

MOST_MESSAGE_BYTES = 1024 * 1024
PING_EVERY_S = 20.0
_NORMAL = 1000
_STALLED_S = 600
"""How long a client may take nothing of what waits for it. TCP can't tell one that reads nothing from a dead one."""

_LINGER_S = 60
"""How long what was sent last may take to be read."""

PEER = "gpu_dev.peer"
"""The ASGI extension with the Peer of a WebSocket."""

OPTIONS: dict[str, Any] = {
    "ws_max_size": MOST_MESSAGE_BYTES,
    "ws_per_message_deflate": False,  # terminals and binary data: it costs 300 KiB a connection
    "ws_ping_interval": PING_EVERY_S,
    "ws_ping_timeout": None,
}
"""What a server's configuration needs besides the class."""


_QUIET = logging.getLogger(__name__)
_QUIET.setLevel(logging.CRITICAL + 1)
"""uvicorn logs addresses with their queries, which hold commands, and takes refusals for mistakes. The application logs
its own errors."""


class Peer:
    """The other side. `gone` is set when it has left, however much of what it sent is not received yet."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.left_in_order = False
        """Whether it said so (1000), and did not just break off."""


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket; `leave` is called once, when its connection is lost."""

    leave: Callable[[], None] | None = None

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.logger = _QUIET
        self._peer = Peer()

    async def run_asgi(self) -> None:
        """Run the application, then wait for a client that reads slowly, but not for ever."""
        extensions: Any = self.scope["extensions"]
        extensions[PEER] = self._peer
        await super().run_asgi()
        if not self.disconnected:
            self.loop.call_later(_LINGER_S, self.transport.abort)

    def handle_close(self, event: Any) -> None:
        """Note that the client leaves."""
        super().handle_close(event)
        self._peer.left_in_order = self.conn.close_rcvd is not None and self.conn.close_rcvd.code == _NORMAL
        self._peer.gone.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the connection's slot back."""
        self._peer.gone.set()
        if self.leave is not None:
            self.leave()
        super().connection_lost(exc)


def take_over(transport: Any, leave: Callable[[], None]) -> None:
    """Call `leave` when the WebSocket of a transport is lost, and let TCP end it when its peer is dead."""
    protocol = transport.get_protocol()
    if isinstance(protocol, BoundedWebSocket):
        protocol.leave = leave
    notice_dead_peers(transport)


def notice_dead_peers(transport: Any, stalled_s: int | None = _STALLED_S) -> None:
    """Let TCP end a connection whose peer is dead, or takes nothing of what waits for it for `stalled_s`."""
    opened = transport.get_extra_info("socket")
    if opened is None:
        return
    with suppress(OSError):
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, option):
                opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        if stalled_s is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stalled_s * 1000)

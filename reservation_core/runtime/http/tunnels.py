"""Connections that an application takes over after an upgrade, to pass their bytes on as they are.

For an upgrade that goes to another server the framework's WebSockets would be in the way: they bound messages, put
fragments together, and answer pings by themselves.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from reservation_core.runtime.http.bounded_protocol import BoundedProtocol, ServerBounds
from reservation_core.runtime.http.bounded_websocket import notice_dead_peers

TUNNEL = "gpu_dev.tunnel"
"""The ASGI extension: call it to take the connection over. It is there for upgrades that `takes` has chosen."""

STALLED_S = 600.0
"""How long a client may take nothing of what waits for it. Browsers pause pages in the background."""

_CHUNK_BYTES = 64 * 1024


class Tunnel:
    """The bytes after an upgrade's head, in both directions, with back-pressure."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        transport: asyncio.Transport,
        drain: Callable[[], Any],
        close: Callable[[], None],
    ) -> None:
        self._reader = reader
        self._transport = transport
        self._drain = drain
        self.close = close
        """End the connection once all is written."""

    async def read(self) -> bytes:
        """At most 64 KiB, once there are some; none at the end."""
        return await self._reader.read(_CHUNK_BYTES)

    async def write(self, data: bytes) -> None:
        """Pass bytes on, and wait while the client does not read. Bytes for a client that has left are dropped."""
        if not self._transport.is_closing():  # uvloop raises RuntimeError otherwise
            self._transport.write(data)
        await self._drain()


class TunnelProtocol(BoundedProtocol):
    """A bounded connection. Upgrades that `takes` chooses go to the application as requests with TUNNEL."""

    def __init__(
        self, takes: Callable[[Mapping[str, Any]], bool], bounds: ServerBounds, *args: Any, **more: Any
    ) -> None:
        super().__init__(bounds, *args, **more)
        self._takes = takes
        self._tunnel: asyncio.StreamReader | None = None

    @property
    def busy(self) -> bool:
        """Whether a request is pending, or the connection was taken over."""
        return self._tunnel is not None or super().busy

    def data_received(self, data: bytes) -> None:
        """Parse input, or pass it to the tunnel."""
        if self._tunnel is not None:
            self._tunnel.feed_data(data)
        else:
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the tunnel."""
        if self._tunnel is not None:
            self._tunnel.feed_eof()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close a tunnel at once: it has no last answer."""
        if self._tunnel is not None:
            self._close_tunnel()
        else:
            super().shutdown()

    def _await_reader(self) -> None:
        """Disconnect the client of a tunnel that takes nothing for long, however slow it is otherwise."""
        if self._tunnel is None:
            super()._await_reader()
            return
        self._unread_bytes = self.transport.get_write_buffer_size()
        if self._unread is None and self._unread_bytes:
            self._unread = self.loop.call_later(STALLED_S, self._reader_is_late)

    def _reader_is_late(self) -> None:
        if self._tunnel is not None and self.transport.get_write_buffer_size() < self._unread_bytes:
            self._unread = None
            self._await_reader()
        else:
            super()._reader_is_late()

    def _should_upgrade(self) -> bool:
        if not super()._should_upgrade():
            return False
        if not self._takes(self.scope):
            return True
        extensions: Any = self.scope.setdefault("extensions", {})
        extensions[TUNNEL] = self._open_tunnel
        return False

    def _open_tunnel(self) -> Tunnel:
        reader = asyncio.StreamReader(limit=_CHUNK_BYTES)
        reader.set_transport(self.transport)
        self._tunnel = reader
        cycle: Any = self.cycle
        cycle.disconnected = True  # it answers nothing more
        self._stop_waiting()
        notice_dead_peers(self.transport, stalled_s=None)
        return Tunnel(reader, self.transport, self.flow.drain, self._close_tunnel)

    def _close_tunnel(self) -> None:
        self.transport.close()
        self._await_reader()

"""Connections that an application takes over after an upgrade, to pass their bytes on as they are.

For an upgrade that goes to another server the framework's WebSockets would be in the way: they bound messages, put
fragments together, and answer pings by themselves.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from reservation_core.runtime.http.bounded_protocol import BoundedProtocol, ServerBounds
from reservation_core.runtime.http.bounded_websocket import notice_dead_peers

TUNNEL = "gpu_dev.tunnel"
"""The ASGI extension: call it to take the connection over. It is there for upgrades that `takes` has chosen."""

_CHUNK_BYTES = 64 * 1024


class Tunnel:
    """The bytes after an upgrade's head, in both directions, with back-pressure."""

    def __init__(self, reader: asyncio.StreamReader, transport: asyncio.Transport, drain: Callable[[], Any]) -> None:
        self._reader = reader
        self._transport = transport
        self._drain = drain

    async def read(self) -> bytes:
        """At most 64 KiB, once there are some; none at the end."""
        return await self._reader.read(_CHUNK_BYTES)

    async def write(self, data: bytes) -> None:
        """Pass bytes on, and wait while the client does not read."""
        self._transport.write(data)
        await self._drain()

    def close(self) -> None:
        """End the connection once all is written."""
        self._transport.close()


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

    def pause_writing(self) -> None:
        """Wait for the reader of a tunnel as long as it answers at all."""
        if self._tunnel is not None:
            HttpToolsProtocol.pause_writing(self)
        else:
            super().pause_writing()

    def shutdown(self) -> None:
        """Close a tunnel at once: it has no last answer."""
        if self._tunnel is not None:
            self.transport.close()
        else:
            super().shutdown()

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
        notice_dead_peers(self.transport)
        return Tunnel(reader, self.transport, self.flow.drain)

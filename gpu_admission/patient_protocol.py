"""HTTP connections whose heads must come within a time and a size: the server itself only bounds idleness."""

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_LARGEST_HEAD = 64 * 1024


def patient_protocol(head_s: float) -> Callable[..., asyncio.Protocol]:
    """The protocol, with so many seconds for each request's head, from its first byte on, and for a new connection."""

    class PatientProtocol(HttpToolsProtocol):
        """Closes the connections of those who don't get to the end of a head."""

        _late: asyncio.TimerHandle | None = None
        _head_bytes = 0

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._await_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._head_came()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._late is not None:
                self._head_bytes += len(data)
                if self._head_bytes > _LARGEST_HEAD:
                    self.transport.close()

        def on_message_begin(self) -> None:
            self._await_head()
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._head_came()
            super().on_headers_complete()

        def _await_head(self) -> None:
            self._head_came()
            self._head_bytes = 0
            self._late = self.loop.call_later(head_s, self.transport.close)

        def _head_came(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

    def made(*args: Any, **more: Any) -> asyncio.Protocol:
        return PatientProtocol(*args, **more)

    return made

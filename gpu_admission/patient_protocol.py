"""HTTP connections whose heads must come within a time and a size: the server itself only bounds idleness."""

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_LARGEST_HEAD = 64 * 1024


class PatientProtocol(HttpToolsProtocol):
    """Closes the connections of those who don't get to the end of a head, within so many seconds for each request's,
    from its first byte on, and for a new connection."""

    def __init__(self, patience_s: float, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._patience_s = patience_s
        self._late: asyncio.TimerHandle | None = None
        self._in_head = True
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Its first head is awaited from now on."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is awaited any more."""
        self._in_head = False
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Time runs for a head that did not come at once, and its size counts."""
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > _LARGEST_HEAD:
                self.transport.close()
            elif self._late is None:
                self._await_head()

    def on_message_begin(self) -> None:
        """A head begins."""
        self._stop_waiting()
        self._in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """A head is over."""
        self._head_came()
        super().on_headers_complete()

    def _await_head(self) -> None:
        self._late = self.loop.call_later(self._patience_s, self.transport.close)

    def _head_came(self) -> None:
        self._in_head = False
        self._stop_waiting()

    def _await_body(self, late: Callable[[], None]) -> None:
        """Have `late` called unless the body comes in time; time runs from the first call on."""
        if self._late is None:
            self._late = self.loop.call_later(self._patience_s, late)

    def _body_came(self) -> None:
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def patient_protocol(patience_s: float) -> Callable[..., asyncio.Protocol]:
    """What makes these connections."""

    def made(*args: Any, **more: Any) -> asyncio.Protocol:
        return PatientProtocol(patience_s, *args, **more)

    return made

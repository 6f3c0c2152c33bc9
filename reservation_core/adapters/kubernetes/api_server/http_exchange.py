"""One HTTP/1.1 connection to the API server: one request at a time, each answer read whole.

Bindings and pods are created by the hundreds a second, and aiohttp needs several times the CPU of the exchange itself.
Proxies, redirects, streams and compression are left to aiohttp, in connections.py.
"""

import asyncio
from collections.abc import Callable

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from reservation_core.adapters.kubernetes.api_server.requests import ApiServerAnswer

_LARGEST_HEAD_BYTES = 64 * 1024
_FINAL = 200
_HAVE_NO_BODY = (204, 304)


class BrokenConnectionError(ConnectionError):
    """The connection ended, or sent something that is not HTTP, before the answer was complete."""


class HttpExchange(asyncio.Protocol):
    """The protocol of one connection; `lost` is called with it when the connection has ended."""

    def __init__(self, lost: Callable[["HttpExchange"], None]) -> None:
        self.idle_since = 0.0
        """When the pool took it back, on the event loop's clock."""
        self.answer_began = False
        """Whether any byte has arrived since the last request."""
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._parser = HttpResponseParser(self)
        self._waiter: asyncio.Future[ApiServerAnswer] | None = None
        self._reusable = False
        self._status = self._head_bytes = 0
        self._has_end = self._until_end = self._kept_alive = False
        self._retry_after: str | None = None
        self._parts: list[bytes] = []

    @property
    def reusable(self) -> bool:
        """Whether another request may be sent: none is pending, and neither side is closing."""
        return self._reusable and self._transport is not None and not self._transport.is_closing()

    def ask(self, data: bytes) -> asyncio.Future[ApiServerAnswer]:
        """Send a whole request; its answer may raise BrokenConnectionError. Callers `abort` when they stop waiting."""
        if self._transport is None:
            raise BrokenConnectionError("ended")
        self._reusable = self.answer_began = False
        self._waiter = waiter = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        return waiter

    def abort(self) -> None:
        """End the connection without a TLS close; a pending request gets BrokenConnectionError."""
        self._reusable = False
        if self._transport is not None:
            self._transport.abort()
        self._fail(BrokenConnectionError("ended from here"))

    # Called by the event loop.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._reusable = True

    def data_received(self, data: bytes) -> None:
        if self._waiter is None:
            self.abort()  # no request is pending
            return
        self.answer_began = True
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as problem:
            self._fail(BrokenConnectionError(f"not an answer: {type(problem).__name__}"))
            self.abort()

    def eof_received(self) -> None:
        self._reusable = False

    def connection_lost(self, error: Exception | None) -> None:
        """End the pending request; the end of the connection completes an answer without a stated length."""
        self._reusable = False
        if error is None and self._until_end:
            self._complete()
        self._fail(BrokenConnectionError("ended"))
        self._transport = None
        del self._parser  # breaks a reference cycle
        self._lost(self)

    # Called by the parser.

    def on_message_begin(self) -> None:
        if self._waiter is None:
            self._reusable = False  # an answer without a request
        self._status = self._head_bytes = 0
        self._has_end = self._until_end = self._kept_alive = False
        self._retry_after = None

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > _LARGEST_HEAD_BYTES:
            raise BrokenConnectionError("more headers than an API server sends")
        name = name.lower()
        if name == b"retry-after":
            self._retry_after = value.decode("latin-1")
        elif name in (b"content-length", b"transfer-encoding"):
            self._has_end = True

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        self._kept_alive = self._parser.should_keep_alive()
        self._until_end = not self._has_end and self._status >= _FINAL and self._status not in _HAVE_NO_BODY

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        """Complete the answer, unless it is an informational one (1xx)."""
        if self._status >= _FINAL:
            self._reusable = self._waiter is not None and self._kept_alive
            self._complete()

    def _complete(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            waiter.set_result(ApiServerAnswer(self._status, body, self._retry_after))
        self._parts = []

    def _fail(self, problem: Exception) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(problem)

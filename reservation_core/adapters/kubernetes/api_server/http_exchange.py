"""One HTTP/1.1 connection to the API server: one request at a time, each answered whole.

It exists because of what a call costs. Bindings and pods are made by the hundreds a second, and aiohttp spends several
times as much of our CPU on each as the exchange of the bytes does. It knows no more of HTTP than such a call needs: no
proxies, no redirects, no streams, no compression. Callers that need those use aiohttp, in connections.py.
"""

import asyncio
from collections.abc import Callable

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from reservation_core.adapters.kubernetes.api_server.requests import ApiServerAnswer

_LARGEST_HEAD_BYTES = 64 * 1024
_FINAL = 200
_HAVE_NO_BODY = (204, 304)


class BrokenConnectionError(ConnectionError):
    """The connection ended, or brought something else than an answer, before the answer was complete."""


class HttpExchange(asyncio.Protocol):
    """The protocol of one connection; `lost` is called with it when the connection is no more."""

    def __init__(self, lost: Callable[["HttpExchange"], None]) -> None:
        self.idle_since = 0.0
        """When it was last put by, on the event loop's clock; for whoever keeps it."""
        self.answer_began = False
        """Whether anything has come since the last request."""
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._parser = HttpResponseParser(self)
        self._waiter: asyncio.Future[ApiServerAnswer] | None = None
        self._reusable = False
        self._status = self._head_bytes = 0
        self._has_end = self._until_end = self._kept_alive = False
        self._asked_pause: str | None = None
        self._parts: list[bytes] = []

    @property
    def reusable(self) -> bool:
        """Whether another request may be sent: nothing is under way, and neither side has said that it ends here."""
        return self._reusable and self._transport is not None and not self._transport.is_closing()

    def ask(self, data: bytes) -> asyncio.Future[ApiServerAnswer]:
        """Send a whole request; its answer raises BrokenConnectionError. A caller that gives the answer up has to
        `abort`.
        """
        if self._transport is None:
            raise BrokenConnectionError("ended")
        self._reusable = self.answer_began = False
        self._waiter = waiter = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        return waiter

    def abort(self) -> None:
        """End it now, without a farewell; what is under way gets BrokenConnectionError."""
        self._reusable = False
        if self._transport is not None:
            self._transport.abort()
        self._fail(BrokenConnectionError("ended from here"))

    # What the event loop calls.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Ready for the first request."""
        self._transport = transport
        self._reusable = True

    def data_received(self, data: bytes) -> None:
        """Part of an answer."""
        if self._waiter is None:
            self.abort()  # nothing was asked
            return
        self.answer_began = True
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as problem:
            self._fail(BrokenConnectionError(f"not an answer: {type(problem).__name__}"))
            self.abort()

    def eof_received(self) -> None:
        """The other side ends it."""
        self._reusable = False

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is no more, which completes an answer without a stated length."""
        self._reusable = False
        if error is None and self._until_end:
            self._complete()
        self._fail(BrokenConnectionError("ended"))
        self._transport = None
        del self._parser  # it knows us, too; nobody should have to look for the circle
        self._lost(self)

    # What the parser calls.

    def on_message_begin(self) -> None:
        """An answer begins."""
        if self._waiter is None:
            self._reusable = False  # another one than was asked for
        self._status = self._head_bytes = 0
        self._has_end = self._until_end = self._kept_alive = False
        self._asked_pause = None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep what matters."""
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > _LARGEST_HEAD_BYTES:
            raise BrokenConnectionError("more headers than an API server sends")
        name = name.lower()
        if name == b"retry-after":
            self._asked_pause = value.decode("latin-1")
        elif name in (b"content-length", b"transfer-encoding"):
            self._has_end = True

    def on_headers_complete(self) -> None:
        """Know what the answer is, and how it ends."""
        self._status = self._parser.get_status_code()
        self._kept_alive = self._parser.should_keep_alive()
        self._until_end = not self._has_end and self._status >= _FINAL and self._status not in _HAVE_NO_BODY

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body."""
        self._parts.append(body)

    def on_message_complete(self) -> None:
        """The answer is there, unless it only told that there will be one."""
        if self._status >= _FINAL:
            self._reusable = self._waiter is not None and self._kept_alive
            self._complete()

    def _complete(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            waiter.set_result(ApiServerAnswer(self._status, body, self._asked_pause))
        self._parts = []

    def _fail(self, problem: Exception) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(problem)

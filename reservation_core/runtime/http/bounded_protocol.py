"""HTTP/1.1 connections with bounds before authentication: head, URL, fields, time and rate of the body, reading.

uvicorn bounds none of them. This class counts and times its parser's input, answers 431, 414, 408 or 400, and closes.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from reservation_core.domain.network.connection_slots import ConnectionSlots
from reservation_core.domain.network.http_limits import HttpLimits, Refusal
from reservation_core.runtime.http.bounded_websocket import take_over
from reservation_core.runtime.http.refusals import Refusals, answers

_PIECE = 16 * 1024
"""Bytes that are parsed between two checks of the limits."""

_MOST_PIPELINED = 32
_LINGER_S = 2.0
_LINGER_BYTES = 16 * 2**20
"""Bytes that are read and discarded after a refusal: a client that still sends would lose the response by a reset."""

_CHECK_BODY_EVERY_S = 1.0

_AFTER_A_STALL_S = 0.1
"""Extra time for a late client: after a stall of the event loop, its bytes have arrived but are not read yet."""


class _Stage(Enum):
    """The state of the parser. OVER: the connection is no longer read."""

    BETWEEN = auto()
    HEAD = auto()
    BODY = auto()
    OVER = auto()


_BETWEEN, _HEAD, _BODY, _OVER = _Stage  # a lookup in the class costs as much as a call


class _RefusedError(Exception):
    """Stops the parser; the protocol has the reason."""


@dataclass(slots=True)
class ServerBounds:
    """Common limits and counts of a server's connections."""

    limits: HttpLimits
    slots: "ConnectionSlots[BoundedProtocol]" = field(init=False)
    refusals: Refusals = field(default_factory=Refusals)
    answers: dict[Refusal, bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.slots = ConnectionSlots(self.limits.connections, self.limits.connections_per_address)
        self.answers = answers(self.limits)


class BoundedProtocol(HttpToolsProtocol):
    """A connection within its server's bounds, counted from the accept on, before it has a transport."""

    def __init__(self, bounds: ServerBounds, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.bounds = bounds
        self.used_at = self.loop.time()
        self.connecting: asyncio.Task[None] | None = None
        self._connected = False
        self._stage = _BETWEEN
        self._upgrades = False  # to a WebSocket
        self._moved = False  # the current piece began or ended a message
        self._begun = False  # the current head began in the current piece
        self._refused = Refusal.MALFORMED
        self._stranger = True
        self._client: dict[object, object] | None = None  # from its verified certificate
        self._unframed_bytes = 0  # of the head so far, or of a body's framing
        self._body_bytes = 0
        self._body_began = 0.0
        self._overdue = False
        self._discard_bytes = _LINGER_BYTES
        self._late: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._unread_bytes = 0

    # --- For the server's slots.

    @property
    def busy(self) -> bool:
        """Whether a request is pending."""
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete:
            return not cycle.disconnected
        return self._stage is _BODY or self._upgrades

    def displace(self) -> None:
        """Close the connection in favour of another one."""
        self.bounds.refusals.add(Refusal.DISPLACED, self.client, self.loop.time())
        self._stage = _OVER
        if self._connected:
            self.transport.abort()
        elif self.connecting is not None:
            self.connecting.cancel()

    # --- Called by the transport.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head."""
        super().connection_made(transport)
        self._connected = True
        if shown := transport.get_extra_info("peercert"):
            name = ", ".join(f"{name}={value}" for ((name, value), *_) in shown["subject"])
            self._client = {"client_cert_name": name}
        if self._stage is _OVER:
            transport.abort()
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stage = _OVER
        self._stop_waiting()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        self.bounds.slots.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse input within the limits."""
        if self._stage is _OVER:
            self._discard(len(data))
            return
        self._unset_keepalive_if_required()
        if len(data) <= _PIECE:
            self._feed(data)
            return
        view = memoryview(data)
        for at in range(0, len(data), _PIECE):
            if not self._feed(view[at : at + _PIECE]) or self.transport.is_closing():
                return

    def pause_writing(self) -> None:
        """Bound the time of a client that reads too slowly."""
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        """Cancel the bound: the client has read. A connection that closes waits for the rest with a new one."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        if self.transport.is_closing():
            self._await_reader()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that has been idle for too long."""
        super().timeout_keep_alive_handler()
        self._await_reader()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over, which keeps its slot."""
        super().handle_websocket_upgrade()
        take_over(self.transport, partial(self.bounds.slots.leave, self))

    # --- Called by the parser.

    def on_message_begin(self) -> None:
        self._stage = _HEAD
        self._moved = self._begun = True
        super().on_message_begin()
        if self._client is not None:
            self.scope["extensions"] = {"tls": self._client}  # ASGI's TLS extension

    def on_headers_complete(self) -> None:
        """Check a complete head. Raises to stop the parser when it is beyond the limits."""
        limits = self.bounds.limits
        if len(self.url) > limits.url_bytes:
            self._refuse_inside(Refusal.URL_TOO_LONG)
        if len(self.headers) > limits.head_fields:
            self._refuse_inside(Refusal.TOO_MANY_FIELDS)
        if (not self._begun or limits.head_bytes < _PIECE) and self._head_bytes() > limits.head_bytes:
            self._refuse_inside(Refusal.HEAD_TOO_LARGE)
        if self.parser.should_upgrade() and self._announces_body():
            self._refuse_inside(Refusal.UPGRADE_WITH_BODY)  # the parser would read nothing after the head
        if len(self.pipeline) >= _MOST_PIPELINED:
            self._refuse_inside(Refusal.TOO_MANY_PIPELINED)
        self._unframed_bytes = self._body_bytes = 0
        self._discard_bytes = _LINGER_BYTES
        self._upgrades = self.parser.should_upgrade() and self._should_upgrade()
        before: Any = self.cycle
        if self._upgrades and before is not None and not before.response_complete:
            self._refuse_inside(Refusal.TOO_MANY_PIPELINED)
        self._head_came()
        super().on_headers_complete()
        if self._upgrades:
            return
        self._stage = _BODY  # last, as the parser may refuse this head, and `cycle` is the previous request
        self.headers = []  # the application has its list; trailers must not be added to it

    def on_body(self, body: bytes) -> None:
        self._unframed_bytes = 0
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._stage = _BETWEEN
        self._moved = True
        self._unframed_bytes = 0
        if self._late is not None:
            self._stop_waiting()
        if self._upgrades:
            return
        super().on_message_complete()
        if self.cycle.response_complete and self.timeout_keep_alive_task is None and not self.transport.is_closing():
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def on_response_complete(self) -> None:
        """Read the rest of the request's body only for a moment after the response."""
        self.used_at = self.loop.time()
        super().on_response_complete()
        if self.transport.is_closing():
            self._await_reader()
        elif self._stage is _BODY and self.cycle.response_complete:
            self._stop_waiting()
            self._late = self.loop.call_later(_LINGER_S, self._end)

    # --- Limits.

    def _feed(self, piece: "bytes | memoryview") -> bool:
        """Parse a piece; whether to parse more."""
        self._moved = self._begun = False
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            # The parser reads nothing more: what follows is a WebSocket's, or else the response is the last one.
            self._stage = _OVER
            if self._upgrades:
                self.handle_websocket_upgrade()
            else:
                self.cycle.keep_alive = False
            return False
        except httptools.HttpParserError:
            refused, self._refused = self._refused, Refusal.MALFORMED
            self._refuse(refused)
            return False
        if self._stage is _BETWEEN:
            # A piece without the begin or end of a message has empty lines, which the parser skips.
            return self._moved or self._count_head(len(piece))
        return self._count_head(len(piece)) if self._stage is _HEAD else self._count_body(len(piece))

    def _count_head(self, size: int) -> bool:
        """Count bytes of an unfinished head; whether it is within the limits."""
        # The piece with the head's beginning also has earlier bytes, so only the parser's output counts there.
        self._unframed_bytes = self._head_bytes() if self._begun else self._unframed_bytes + size
        if self._unframed_bytes > self.bounds.limits.head_bytes:
            long_url = self._stage is _HEAD and not self.headers and len(self.url) > self.bounds.limits.url_bytes
            self._refuse(Refusal.URL_TOO_LONG if long_url else Refusal.HEAD_TOO_LARGE)
            return False
        if self._late is None:
            self._await_head()
        return True

    def _count_body(self, size: int) -> bool:
        """Count bytes of an unfinished body; whether it is within the limits."""
        if self.cycle.response_complete:
            self._discard(size)
            return True
        self._unframed_bytes += size
        if self._unframed_bytes > max(self.bounds.limits.head_bytes, 2 * _PIECE):
            self._refuse(Refusal.HEAD_TOO_LARGE)
            return False
        if self._late is None:
            self._body_began = self.loop.time()
            self._overdue = False
            self._late = self.loop.call_later(_CHECK_BODY_EVERY_S, self._check_body)
        return True

    def _check_body(self) -> None:
        limits, now = self.bounds.limits, self.loop.time()
        if self.flow.read_paused:
            self._body_began += _CHECK_BODY_EVERY_S  # the application makes the client wait
            late = False
        else:
            late = limits.body_is_late(self._body_bytes, now - self._body_began)
        if late and self._overdue:
            self._late = None
            self._refuse(Refusal.BODY_TOO_SLOW)
            return
        self._overdue = late
        self._late = self.loop.call_later(_AFTER_A_STALL_S if late else _CHECK_BODY_EVERY_S, self._check_body)

    def _head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _announces_body(self) -> bool:
        return any(
            name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0 "))
            for name, value in self.headers
        )

    def _await_head(self) -> None:
        self._overdue = False
        self._late = self.loop.call_later(self.bounds.limits.head_s, self._head_is_late)

    def _head_came(self) -> None:
        """Stop waiting for a head, which is complete."""
        self.used_at = self.loop.time()
        if self._late is not None:
            self._stop_waiting()
        if self._stranger:
            self._stranger = False
            self.bounds.slots.know(self)

    def _head_is_late(self) -> None:
        self._late = None
        if self.flow.read_paused:
            self._await_head()  # the server does not read
        elif not self._overdue:
            self._overdue = True
            self._late = self.loop.call_later(_AFTER_A_STALL_S, self._head_is_late)
        elif self._stage is _BETWEEN and not self._unframed_bytes:
            # No bytes, so no answer: browsers open connections in advance.
            self.bounds.refusals.add(Refusal.HEAD_TOO_SLOW, self.client, self.loop.time())
            self.transport.close()
        else:
            self._refuse(Refusal.HEAD_TOO_SLOW)

    def _await_reader(self) -> None:
        """Disconnect the client unless it reads the response."""
        self._unread_bytes = self.transport.get_write_buffer_size()
        if self._unread is None and self._unread_bytes:
            self._unread = self.loop.call_later(self.bounds.limits.reader_s, self._reader_is_late)

    def _reader_is_late(self) -> None:
        self._unread = None
        limits = self.bounds.limits
        if self._unread_bytes - self.transport.get_write_buffer_size() >= limits.body_bytes_per_s * limits.reader_s:
            self._await_reader()  # slow, but within the limits
            return
        self.bounds.refusals.add(Refusal.READER_TOO_SLOW, self.client, self.loop.time())
        self.transport.abort()

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    # --- Refusing.

    def _refuse_inside(self, refusal: Refusal) -> None:
        """Refuse within a callback of the parser, which must stop."""
        self._refused = refusal
        raise _RefusedError(refusal.value)

    def _refuse(self, refusal: Refusal) -> None:
        """Answer a violation, if an answer is possible, and close."""
        self.bounds.refusals.add(refusal, self.client, self.loop.time())
        in_body = self._stage is _BODY
        self._stage = _OVER
        self._stop_waiting()
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete:
            if not in_body:
                # Earlier requests are answered first; the last response closes the connection.
                cycle.keep_alive = False
                self.flow.pause_reading()
                return
            if cycle.response_started or self.pipeline:
                self.transport.abort()
                return
            cycle.disconnected = True
            cycle.message_event.set()
        if not self.transport.is_closing():
            self._answer_and_linger(self.bounds.answers[refusal])

    def _answer_and_linger(self, answer: bytes) -> None:
        self.transport.write(answer)
        if self.transport.can_write_eof() and not self.transport.is_closing():
            with suppress(OSError):  # the client may be gone by now
                self.transport.write_eof()
        self.flow.resume_reading()
        self._late = self.loop.call_later(_LINGER_S, self._end)

    def _end(self) -> None:
        self._stage = _OVER
        self._late = None
        self.transport.close()
        self._await_reader()

    def _discard(self, size: int) -> None:
        self._discard_bytes -= size
        if self._discard_bytes < 0 and not self.flow.read_paused:
            self.flow.pause_reading()

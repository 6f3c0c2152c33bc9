"""A channel of an SSH connection as a stream: whoever is slow makes the other side wait, all the way."""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from typing import Protocol

from asyncssh.channel import SSHChannel
from asyncssh.session import SSHSession

from reservation_core.runtime.ssh.counts import StreamKind

_FULL_BYTES = 128 * 1024
_ROOM_BYTES = 32 * 1024
_CLOSED_LOOK_S = 1.0


class LeftError(Exception):
    """The client reads no more from this channel."""


class Host(Protocol):
    """The connection of a channel."""

    async def until_writable(self) -> None:
        """Wait while the connection has more unsent bytes than it should hold."""

    def note_bytes(self) -> None:
        """Note that something was sent or received."""

    def create_task(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        """Start a task that the server awaits before it ends."""

    def begin(self, flow: "Flow", kind: StreamKind) -> None:
        """Note that a channel is served."""

    def end(self, flow: "Flow") -> None:
        """Note that a channel is served no more."""


class Flow(SSHSession[bytes], ABC):
    """One channel. A subclass says what it is (`kind`) and serves it, in a task that ends with the channel."""

    kind = StreamKind.PORT

    def __init__(self, host: Host) -> None:
        self.host = host
        self.broken = False
        """Whether the connection broke off, rather than being closed."""
        self._channel: SSHChannel[bytes] | None = None
        self._received: deque[bytes] = deque()
        self._held = 0
        self._paused = False
        self._ended = False
        self._half_closed = False
        self._news = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._task: asyncio.Task[None] | None = None
        self._begun = False
        self._gone = False

    @abstractmethod
    async def serve(self) -> None:
        """Serve the channel until it ends."""

    async def discard(self) -> None:
        """Release what the channel would have served, as it is closed before that."""

    @property
    def channel(self) -> SSHChannel[bytes]:
        """The channel, once it is open."""
        assert self._channel is not None  # noqa: S101 - the library calls `connection_made` before all else
        return self._channel

    def connection_made(self, chan: SSHChannel[bytes]) -> None:
        self._channel = chan

    def session_started(self) -> None:
        self._task = self.host.create_task(self._serve())

    def data_received(self, data: bytes, datatype: int | None) -> None:  # noqa: ARG002 - clients send one kind
        self.host.note_bytes()
        self._received.append(data)
        self._held += len(data)
        self._news.set()
        if self._held > _FULL_BYTES and not self._paused:
            self._paused = True
            self.channel.pause_reading()
            self._look_later()

    def eof_received(self) -> bool:
        self._ended = True
        self._news.set()
        return True

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.broken = exc is not None
        self._gone = True
        if self._task is not None and self._begun:
            self._task.cancel()

    async def receive(self) -> bytes:
        """The next bytes from the client; none at the end of its input."""
        while not self._received:
            if self._ended:
                return b""
            self._news.clear()
            await self._news.wait()
        data = self._received.popleft()
        self._held -= len(data)
        if self._paused and self._held < _ROOM_BYTES:
            self._paused = False
            self.channel.resume_reading()
        return data

    async def send(self, data: bytes, datatype: int | None = None) -> None:
        """Send bytes to the client, and wait while it does not read. Raises LeftError."""
        self.host.note_bytes()
        try:
            self.channel.write(data, datatype)
        except OSError as error:
            raise LeftError from error
        if not self._writable.is_set():
            await self._writable.wait()
        await self.host.until_writable()

    def send_end(self) -> None:
        """End this side of the channel; the client's may go on."""
        self._half_closed = True
        self.channel.write_eof()

    async def _serve(self) -> None:
        self._begun = True
        if self._gone:
            await self.discard()
            return
        self.host.begin(self, self.kind)
        try:
            with suppress(LeftError):
                await self.serve()
        finally:
            self.host.end(self)
            self.channel.close()

    def _look_later(self) -> None:
        asyncio.get_running_loop().call_later(_CLOSED_LOOK_S, self._look)

    def _look(self) -> None:
        """End a paused channel that the client has closed: the library reports that only when it is read on."""
        if self._paused and self._task is not None and not self._task.done():
            if self.channel.is_closing() and not self._half_closed:
                self.channel.abort()
            else:
                self._look_later()

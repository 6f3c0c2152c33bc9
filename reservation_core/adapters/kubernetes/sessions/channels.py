"""Several streams over one WebSocket, as the API server's exec, attach and portforward have them.

The first byte of a message is its channel. A reader that stops makes the server wait once some 600 KiB are on their way
here: aiohttp keeps 512 KiB of messages before it stops reading.
"""

import asyncio
from contextlib import suppress
from enum import IntEnum

import aiohttp

from reservation_core.adapters.kubernetes.api_server.connections import OpenWebSocket
from reservation_core.ports.sessions.pod_streams import CHUNK_BYTES, InputClosedError

_KEPT_ALIVE_S = 30.0
"""Proxies before API servers often end connections that are silent for a minute."""


class Channel(IntEnum):
    """The channels of `v5.channel.k8s.io`; `v4` lacks the last. A forwarded port has data in 0 and errors in 1."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    STATUS = 3
    RESIZE = 4
    CLOSE = 255


class ChannelSocket:
    """A WebSocket of channels. One task may receive while others send."""

    def __init__(self, answer: OpenWebSocket) -> None:
        self._answer = answer
        self._raw = answer.raw
        self._receiving: asyncio.Task[tuple[int, bytes] | None] | None = None
        self._rest: tuple[int, bytes] | None = None
        self._closed = False
        self._keeping_alive = asyncio.create_task(self._keep_alive())

    @property
    def protocol(self) -> str | None:
        """The subprotocol that the server has chosen."""
        return self._raw.protocol

    @property
    def closed(self) -> bool:
        """Whether this side has closed it."""
        return self._closed

    async def receive(self) -> tuple[int, bytes] | None:
        """A channel and at most CHUNK_BYTES of it; None when the connection has ended, in whatever way.

        Nothing is lost when this is cancelled. aiohttp would not close a WebSocket properly after that, so it gets a
        task of its own.
        """
        message, self._rest = self._rest, None
        if message is None:
            if self._receiving is None:
                self._receiving = asyncio.create_task(self._next_message())
            message = await asyncio.shield(self._receiving)
            self._receiving = None
        if message is None or len(message[1]) <= CHUNK_BYTES:
            return message
        channel, data = message
        self._rest = channel, data[CHUNK_BYTES:]
        return channel, data[:CHUNK_BYTES]

    async def send(self, channel: int, data: bytes) -> None:
        """Send to a channel, and wait while the server does not read. Raises InputClosedError."""
        for begin in range(0, len(data), CHUNK_BYTES):
            try:
                await self._raw.send_bytes(bytes((channel,)) + data[begin : begin + CHUNK_BYTES])
            except (aiohttp.ClientError, OSError) as problem:
                raise InputClosedError("The connection to the pod has ended.") from problem

    async def close(self) -> None:
        """End the connection within a second. Earlier messages arrive if the server reads them by then."""
        if self._closed:
            return
        self._closed = True
        self._keeping_alive.cancel()
        del self._keeping_alive  # its traceback has this object: together they would wait for the garbage collector
        await self._answer.let_go()
        if self._receiving is not None:
            await asyncio.gather(self._receiving, return_exceptions=True)

    async def _next_message(self) -> tuple[int, bytes] | None:
        while True:
            message = await self._raw.receive()
            if message.type not in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT):
                return None
            content = message.data if isinstance(message.data, bytes) else message.data.encode()
            if len(content) > 1:  # servers begin each channel with an empty message
                return content[0], content[1:]

    async def _keep_alive(self) -> None:
        with suppress(aiohttp.ClientError, OSError):  # the reader learns of it
            while True:
                await asyncio.sleep(_KEPT_ALIVE_S)
                await self._raw.ping()

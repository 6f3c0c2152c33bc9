"""A WebSocket as the transport of an SSH connection: its binary messages are the bytes."""

import asyncio
from contextlib import suppress
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from reservation_core.runtime.ssh.visits import GatewayConnection

_NORMAL = 1000
_UNSUPPORTED = 1003
_FULL_BYTES = 128 * 1024
_ROOM_BYTES = 32 * 1024


class WebSocketTransport(asyncio.Transport):
    """What the SSH protocol writes to. Its bytes go out in the order of `write`, as fast as the client reads."""

    def __init__(self, connection: GatewayConnection) -> None:
        super().__init__({"peername": connection.peer})
        self._connection = connection
        self._unsent = bytearray()
        self._news = asyncio.Event()
        self._paused = False
        self._closing = False

    def write(self, data: Any) -> None:
        if self._closing:
            return
        self._unsent += data
        self._news.set()
        if len(self._unsent) > _FULL_BYTES and not self._paused:
            self._paused = True
            self._connection.pause_writing()

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True
        self._news.set()

    def abort(self) -> None:
        self.close()

    async def send(self, socket: WebSocket) -> None:
        """Send what is written until the SSH connection closes and the last of it is sent."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._unsent:
                data, self._unsent = self._unsent, bytearray()
                await socket.send_bytes(bytes(data))
                if self._paused and len(self._unsent) < _ROOM_BYTES:
                    self._paused = False
                    self._connection.resume_writing()
            if self._closing:
                return


async def serve_ssh(socket: WebSocket, connection: GatewayConnection) -> None:
    """Serve an accepted WebSocket until one side closes."""
    transport = WebSocketTransport(connection)
    connection.connection_made(transport)
    sending = asyncio.create_task(transport.send(socket))
    receiving = asyncio.create_task(_receive(socket, connection))
    try:
        await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            with suppress(RuntimeError, WebSocketDisconnect):
                await socket.close(_NORMAL)
    finally:
        for task in (sending, receiving):
            task.cancel()
        await asyncio.gather(sending, receiving, return_exceptions=True)
        connection.connection_lost(None)


async def _receive(socket: WebSocket, connection: GatewayConnection) -> None:
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        content: bytes | None = message.get("bytes")
        if content is None:
            await socket.close(_UNSUPPORTED, "Send binary messages.")
            return
        connection.data_received(content)

"""A light HTTP load: so many connections, each sending its next request when the answer has come."""

import asyncio
import time
from typing import cast
from urllib.parse import urlsplit


class _Connection(asyncio.Protocol):
    """One keep-alive connection in a closed loop."""

    def __init__(self, request: bytes, until: float, done: "asyncio.Future[None]") -> None:
        self._request = request
        self._until = until
        self._done = done
        self._received = b""
        self.answers = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head_end = self._received.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = self._received[:head_end].lower()
        length = int(head.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
        if len(self._received) < head_end + 4 + length:
            return
        if head.split(b" ", 2)[1] not in (b"200", b"202"):
            self._finish(RuntimeError(self._received.decode(errors="replace")))
            return
        self._received = b""
        self.answers += 1
        if time.monotonic() < self._until:
            self._transport.write(self._request)
        else:
            self._finish(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish(ConnectionError(f"closed by the server: {exc}"))

    def _finish(self, error: Exception | None) -> None:
        if not self._done.done():
            if error is None:
                self._done.set_result(None)
            else:
                self._done.set_exception(error)
            self._transport.close()


def post(url: str, path: str, body: bytes, token: str) -> bytes:
    """A POST as bytes."""
    host = urlsplit(url).netloc
    return (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


async def closed_loop(url: str, request: bytes, *, connections: int, seconds: float) -> float:
    """Answers a second."""
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    started = time.monotonic()
    opened: list[_Connection] = []
    dones = []
    for _ in range(connections):
        done: asyncio.Future[None] = loop.create_future()
        connection = _Connection(request, started + seconds, done)
        await loop.create_connection(lambda connection=connection: connection, parts.hostname, parts.port)  # type: ignore[misc]
        opened.append(connection)
        dones.append(done)
    await asyncio.gather(*dones)
    return sum(connection.answers for connection in opened) / (time.monotonic() - started)

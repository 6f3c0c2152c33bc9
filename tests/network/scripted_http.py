"""An HTTP server that answers with the very bytes that a test gives it, one answer for each request in turn."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httptools

from tests.network.stream_server import stream_server


@dataclass
class Asked:
    """A request as it came, and on which connection, counted from 1."""

    connection: int
    method: str = ""
    target: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


Answer = bytes | Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]
"""The bytes to write; a function may do worse. A connection that it closes is over."""


@dataclass
class ScriptedServer:
    """`answers` are used up one by one, and `usual` is what comes after them."""

    usual: Answer
    answers: list[Answer] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    url: str = ""
    connections: int = 0
    open: set[asyncio.StreamWriter] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end."""
        self.connections += 1
        number = self.connections
        self.open.add(writer)
        try:
            while not writer.is_closing():
                asked = await _read(reader, number)
                if asked is None:
                    break
                self.asked.append(asked)
                answer = self.answers.pop(0) if self.answers else self.usual
                if isinstance(answer, bytes):
                    writer.write(answer)
                else:
                    await answer(asked, writer)
        except ConnectionError:
            pass  # whoever asked has gone
        finally:
            self.open.discard(writer)
            writer.close()


class _Request:
    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.whole = False

    def on_url(self, url: bytes) -> None:
        self.asked.target += url.decode()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.asked.headers[name.decode().lower()] = value.decode()

    def on_body(self, body: bytes) -> None:
        self.asked.body += body

    def on_message_complete(self) -> None:
        self.whole = True


async def _read(reader: asyncio.StreamReader, connection: int) -> Asked | None:
    request = _Request(Asked(connection))
    parser = httptools.HttpRequestParser(request)
    while not request.whole:
        data = await reader.read(2**16)
        if not data:
            return None
        parser.feed_data(data)
    request.asked.method = parser.get_method().decode()
    return request.asked


@asynccontextmanager
async def scripted_server(usual: Answer, context: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedServer]:
    """A server on this machine, in this event loop; over TLS with a context."""
    server = ScriptedServer(usual)
    async with stream_server(server.serve, context=context) as port:
        server.url = f"http{'' if context is None else 's'}://127.0.0.1:{port}"
        yield server

"""A proxy before a PostgreSQL server that answers what it is told to, and lets connections stall, fall silent or break.

It knows the protocol: while a SQLSTATE is set, every statement is answered with this error, as the server would, and
the server's own transaction is rolled back as after an error of its own. Codes after which a server ends the session
are FATAL, and the connection is closed. New connections are taken meanwhile, except where a server refuses them.
"""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum

from sqlalchemy import URL, make_url

from tests.network.stream_server import stream_server

FATAL = frozenset({"08006", "25P03", "53300", "57P01", "57P02", "57P03", "57P05"})
"""The session ends with these."""
_REFUSES = frozenset({"53300", "57P03"})
"""These are said to those who want to connect."""
_SSL_REQUESTS = (80877103, 80877104)
_CANCEL_REQUEST = 80877102
_ALWAYS = (b"ROLLBACK", b"ABORT")


class Silence(Enum):
    """How connections stop working without a word."""

    STALLED = "nothing moves, on old connections as on new ones; all of it arrives afterwards"
    HALF_OPEN = "old connections stay dead for ever, new ones are dead while it lasts; the server notices at its end"


class FaultProxy:
    """Listens on 127.0.0.1; `url` is the server's with this address. `struck` counts what went wrong on purpose."""

    def __init__(self, url: str) -> None:
        self._target = make_url(url)
        self._connections: set[_Connection] = set()
        self.sqlstate: str | None = None
        self.moving = asyncio.Event()
        self.moving.set()
        self.dead_for_new = False
        self.struck = 0
        self._port = 0

    @property
    def url(self) -> str:
        """What to connect to."""
        parts: URL = self._target.set(host="127.0.0.1", port=self._port, query={"ssl": "disable"})
        return parts.render_as_string(hide_password=False)

    def answer(self, sqlstate: str) -> None:
        """Every statement is answered with this error from now on."""
        self.sqlstate = sqlstate

    def fall_silent(self, how: Silence) -> None:
        """Let nothing through, until `heal`."""
        match how:
            case Silence.STALLED:
                self.moving.clear()
            case Silence.HALF_OPEN:
                self.dead_for_new = True
                for connection in self._connections:
                    connection.dead = True

    def reset(self) -> int:
        """Break all connections with a RST; answers how many there were."""
        connections = [*self._connections]
        for connection in connections:
            connection.reset()
        self.struck += len(connections)
        return len(connections)

    def heal(self) -> None:
        """From now on all is as if the server were asked itself."""
        self.sqlstate, self.dead_for_new = None, False
        self.moving.set()
        for connection in self._connections:
            connection.forget()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one connection."""
        connection = _Connection(self, reader, writer)
        self._connections.add(connection)
        try:
            await connection.forward()
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            self._connections.discard(connection)
            writer.transport.abort()

    def close(self) -> None:
        """Break what is left."""
        self.heal()
        for connection in [*self._connections]:
            connection.reset()

    def is_at(self, port: int) -> None:
        """Where it listens."""
        self._port = port

    async def server(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the server itself."""
        folder = self._target.query.get("host")
        port = self._target.port or self._target.query.get("port") or 5432
        if isinstance(folder, str):
            return await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.{port}")
        return await asyncio.open_connection(self._target.host or "127.0.0.1", int(str(port)))


class _Connection:
    """One client, and the server's session that it has."""

    def __init__(self, proxy: FaultProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._reader = reader
        self._writer = writer
        self._status = b"I"
        self._failing: str | None = None  # the rest of what was sent with a statement that was refused
        self._told = False
        self._commit_fails: str | None = None
        self._questions: asyncio.StreamWriter | None = None
        self.dead = proxy.dead_for_new

    def forget(self) -> None:
        """The server has noticed by its keepalives that nobody is there any more; the client has not."""
        if self.dead and self._questions is not None:
            self._questions.transport.abort()

    def reset(self) -> None:
        """Break it without an orderly end."""
        if self._writer.transport.is_closing():
            return
        raw: socket.socket = self._writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def forward(self) -> None:
        startup = await self._startup()
        if startup is None:
            return
        answers, questions = await self._proxy.server()
        self._questions = questions
        try:
            questions.write(startup)
            ways = [asyncio.create_task(self._ask(questions)), asyncio.create_task(self._answer(answers))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        finally:
            questions.transport.abort()

    async def _startup(self) -> bytes | None:
        """The client's first message; None where the connection is refused."""
        while True:
            size = await self._reader.readexactly(4)
            body = await self._reader.readexactly(int.from_bytes(size, "big") - 4)
            await self._passable()
            if int.from_bytes(body[:4], "big") in _SSL_REQUESTS:
                self._writer.write(b"N")
                continue
            refused = self._proxy.sqlstate in _REFUSES and int.from_bytes(body[:4], "big") != _CANCEL_REQUEST
            if refused and self._proxy.sqlstate is not None:
                self._strike(self._proxy.sqlstate)
                await self._writer.drain()
                return None
            return size + body

    async def _passable(self) -> None:
        await self._proxy.moving.wait()
        if self.dead:
            await asyncio.get_running_loop().create_future()

    async def _ask(self, questions: asyncio.StreamWriter) -> None:
        while True:
            kind, frame = await _frame(self._reader)
            await self._passable()
            if self._failing is None and self._is_to_fail(kind, frame):
                self._failing, self._told = self._proxy.sqlstate, False
            if self._failing is None:
                questions.write(frame)
                await questions.drain()
            elif self._failing in FATAL:
                self._strike(self._failing)
                await self._writer.drain()
                return
            elif kind == b"Q" and frame[5:].upper().startswith(b"COMMIT"):
                # A commit that fails has rolled back.
                self._commit_fails, self._failing = self._failing, None
                questions.write(b"Q" + (4 + 9).to_bytes(4, "big") + b"ROLLBACK\0")
                await questions.drain()
            else:
                await self._refuse(kind, self._failing)

    def _is_to_fail(self, kind: bytes, frame: bytes) -> bool:
        if self._proxy.sqlstate is None or kind not in (b"Q", b"P", b"B", b"E", b"D"):
            return False
        return not (kind == b"Q" and frame[5:].upper().startswith(_ALWAYS))

    async def _refuse(self, kind: bytes, sqlstate: str) -> None:
        """As a server does: an error for the first message, nothing for the others, and ready once synchronised."""
        if not self._told and kind in (b"Q", b"S", b"H"):
            self._strike(sqlstate)
            self._told = True
        if kind in (b"Q", b"S"):
            self._status = b"I" if self._status == b"I" else b"E"
            self._writer.write(b"Z\x00\x00\x00\x05" + self._status)
            self._failing = None
        await self._writer.drain()

    async def _answer(self, answers: asyncio.StreamReader) -> None:
        while True:
            try:
                kind, frame = await _frame(answers)
            finally:
                await self._passable()
            if kind == b"Z":
                self._status = frame[5:6]
                if self._commit_fails is not None:
                    self._strike(self._commit_fails)
                    self._commit_fails = None
            if self._commit_fails is None:
                self._writer.write(frame)
                await self._writer.drain()

    def _strike(self, sqlstate: str) -> None:
        self._proxy.struck += 1
        severity = b"FATAL" if sqlstate in FATAL else b"ERROR"
        fields = b"S" + severity + b"\0V" + severity + b"\0C" + sqlstate.encode() + b"\0Minjected\0\0"
        self._writer.write(b"E" + (4 + len(fields)).to_bytes(4, "big") + fields)


async def _frame(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """One message's kind, and all of it."""
    head = await reader.readexactly(5)
    return head[:1], head + await reader.readexactly(int.from_bytes(head[1:], "big") - 4)


@asynccontextmanager
async def fault_proxy(url: str) -> AsyncIterator[FaultProxy]:
    """A proxy before this server while the block runs."""
    proxy = FaultProxy(url)
    async with stream_server(proxy.serve) as port:
        proxy.is_at(port)
        try:
            yield proxy
        finally:
            proxy.close()

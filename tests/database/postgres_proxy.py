"""A way to a real PostgreSQL on which anything can go wrong: errors of any SQLSTATE, silence, resets.

It speaks enough of PostgreSQL's protocol (version 3, without TLS) to answer a statement with an error in the server's
place, between two messages. What it does not answer itself is the real server's.
"""

import asyncio
import socket
import struct
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from tests.kubernetes.background import Background
from tests.network.stream_server import stream_server

_CANCEL, _TLS = 80877102, 80877103
_EXTENDED = frozenset(b"PBDEC")
_FLUSH, _SYNC, _SIMPLE = b"H", b"S", b"Q"
# Statements that a failing server still takes: they begin and undo transactions.
_TAKEN = (b"BEGIN", b"ROLLBACK")
_COMMIT = b"COMMIT"
# With these the server ends the session, and with the last two it takes no new one.
_FATAL = frozenset({"57P01", "57P02", "57P04", "57P05", "25P03", "57P03", "53300"})
_AT_THE_DOOR = frozenset({"57P03", "53300"})


@dataclass(eq=False)
class _Link:
    """One client's connection. A silent one takes everything and passes nothing on."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    silent: bool = False
    status: bytes = b"I"
    refused: bool = False
    told: bool = False
    undone_for: str | None = None
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def cut(self, *, reset: bool = False) -> None:
        """End it on both sides; with `reset` the client is sent one instead of an orderly end."""
        if reset:
            linger = struct.pack("ii", 1, 0)
            self.client.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.client.transport.abort()
        self.server.transport.abort()


class PostgresProxy(Background):
    """Listens on 127.0.0.1 in a thread of its own; `url` leads through it to the database of `database_url`."""

    def __init__(self, database_url: str) -> None:
        super().__init__("the way to PostgreSQL")
        self._parts = urlsplit(database_url)
        self._links: set[_Link] = set()
        self._sqlstate: str | None = None
        self._only = b""
        self._silent = False
        self._port = 0
        self.opened = 0

    @property
    def url(self) -> str:
        """The database's address by this way, as SQLAlchemy with asyncpg takes it."""
        user = self._parts.netloc.rpartition("@")[0]
        return f"postgresql+asyncpg://{user}@127.0.0.1:{self._port}{self._parts.path}"

    def answer(self, sqlstate: str | None, only: bytes = b"") -> None:
        """From now on answer every statement with this SQLSTATE, or `only` those without parameters that begin so.

        With None the server answers again.
        """
        self._only, self._sqlstate = only, sqlstate

    def stall(self, *, new: bool = False) -> None:
        """Connections that are open fall silent but stay; with `new` those that are opened from now on, too."""

        async def act() -> None:
            self._silent = new
            for link in self._links:
                link.silent = True

        self.call(act())

    def half_open(self) -> None:
        """The server's side of open connections is gone and the client is not told; new ones work."""

        async def act() -> None:
            for link in self._links:
                link.silent = True
                link.server.transport.abort()

        self.call(act())

    def reset(self) -> None:
        """Open connections are reset; new ones work."""

        async def act() -> None:
            for link in [*self._links]:
                link.cut(reset=True)

        self.call(act())

    def heal(self) -> None:
        """New connections work. Those that are silent never will: they are ended."""

        async def act() -> None:
            self._sqlstate, self._silent = None, False
            for link in [*self._links]:
                if link.silent:
                    link.cut(reset=True)

        self.call(act())

    async def _live(self) -> None:
        async with stream_server(self._serve) as self._port:
            self._is_up()
            await asyncio.get_running_loop().create_future()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        answers, server = await self._behind()
        link = _Link(writer, server, silent=self._silent)
        self._links.add(link)
        questions = asyncio.create_task(self._forward(link, reader))
        replies = asyncio.create_task(_backward(link, answers))
        link.tasks = {questions, replies}
        try:
            await asyncio.wait(link.tasks, return_when=asyncio.FIRST_COMPLETED)
            if link.silent and not questions.done():
                # The server's side ended, and the client is not to know.
                await asyncio.wait({questions})
        finally:
            self._links.discard(link)
            for task in link.tasks:
                task.cancel()
            await asyncio.gather(*link.tasks, return_exceptions=True)
            link.cut()

    async def _behind(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        query = parse_qs(self._parts.query)
        folder = query.get("host", [None])[0]
        if folder is not None:
            port = query.get("port", [str(self._parts.port or 5432)])[0]
            return await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.{port}")
        return await asyncio.open_connection(self._parts.hostname, self._parts.port)

    async def _forward(self, link: _Link, reader: asyncio.StreamReader) -> None:
        try:
            while await self._hello(link, reader):
                pass
            while True:
                kind = await reader.readexactly(1)
                size = await reader.readexactly(4)
                body = await reader.readexactly(int.from_bytes(size) - 4)
                if not link.silent and not self._answered(link, kind, body):
                    link.server.write(kind + size + body)
                    await link.server.drain()
        except (asyncio.IncompleteReadError, OSError):
            return

    async def _hello(self, link: _Link, reader: asyncio.StreamReader) -> bool:
        """Pass on what comes before typed messages; true while more of it is to come."""
        size = await reader.readexactly(4)
        body = await reader.readexactly(int.from_bytes(size) - 4)
        code = int.from_bytes(body[:4])
        if code == _TLS:
            link.client.write(b"N")
            return True
        if code != _CANCEL and self._sqlstate in _AT_THE_DOOR:
            link.client.write(_error(self._sqlstate or "", fatal=True))
            await link.client.drain()
            raise ConnectionResetError
        if not link.silent:
            link.server.write(size + body)
        return code == _CANCEL

    def _answered(self, link: _Link, kind: bytes, body: bytes) -> bool:
        """Answer in the server's place; false for what is the server's."""
        sqlstate = self._sqlstate
        if sqlstate is None and not link.refused:
            return False
        if kind == _SIMPLE and body.startswith(_TAKEN):
            return False
        if self._only and (kind != _SIMPLE or not body.startswith(self._only)):
            return False
        if kind[0] not in _EXTENDED and kind not in (_FLUSH, _SYNC, _SIMPLE):
            return False
        if kind == _SYNC and not link.refused:
            return False
        if kind == _SIMPLE and body.startswith(_COMMIT) and sqlstate not in _FATAL:
            # A server that can't commit has undone it all.
            link.undone_for = sqlstate
            undo = b"ROLLBACK\0"
            link.server.write(_SIMPLE + struct.pack("!i", 4 + len(undo)) + undo)
            return True
        link.refused = True
        if kind in (_FLUSH, _SYNC, _SIMPLE):
            self._refuse(link, sqlstate or "58000", done=kind != _FLUSH)
        return True

    def _refuse(self, link: _Link, sqlstate: str, *, done: bool) -> None:
        fatal = sqlstate in _FATAL
        if not link.told:
            link.told = True
            link.client.write(_error(sqlstate, fatal=fatal))
        if fatal:
            link.client.close()
            link.server.transport.abort()
        elif done:
            link.refused = link.told = False
            link.client.write(b"Z" + struct.pack("!i", 5) + (b"I" if link.status == b"I" else b"E"))


async def _backward(link: _Link, answers: asyncio.StreamReader) -> None:
    try:
        while True:
            kind = await answers.readexactly(1)
            size = await answers.readexactly(4)
            body = await answers.readexactly(int.from_bytes(size) - 4)
            if kind == b"Z":
                link.status = body
            if link.undone_for is not None:
                if kind == b"Z":
                    link.client.write(_error(link.undone_for, fatal=False) + kind + size + body)
                    link.undone_for = None
            elif not link.silent:
                link.client.write(kind + size + body)
                await link.client.drain()
    except (asyncio.IncompleteReadError, OSError):
        return


def _error(sqlstate: str, *, fatal: bool) -> bytes:
    severity = b"FATAL" if fatal else b"ERROR"
    fields = b"S" + severity + b"\0V" + severity + b"\0C" + sqlstate.encode() + b"\0Minjected\0\0"
    return b"E" + struct.pack("!i", 4 + len(fields)) + fields

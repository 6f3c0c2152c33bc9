"""One server in this process, with limits and addresses that no network of a test has."""

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from reservation_core.domain.network.http_limits import HttpLimits, Refusal
from reservation_core.runtime.http import bounded_listener
from reservation_core.runtime.http.bounded_protocol import ServerBounds
from reservation_core.runtime.http.serving import QuietServer, open_socket, quiet_config
from tests.programs.webhook_process import new_pair, trusting, write_pair
from tests.waiting import eventually

ASKED = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Listening:
    """Where the server is, and what it counts."""

    def __init__(self, port: int, bounds: ServerBounds) -> None:
        self.port = port
        self.bounds = bounds

    def connect(self, tls: ssl.SSLContext | None = None) -> Any:
        return asyncio.open_connection("127.0.0.1", self.port, ssl=tls)

    def refused(self, refusal: Refusal) -> int:
        return self.bounds.refusals.counts[refusal]


async def _read_all(scope: Any, receive: Any, send: Any) -> None:
    del scope
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    answer = str(size).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(answer))]})
    await send({"type": "http.response.body", "body": answer})


@asynccontextmanager
async def serving(
    limits: HttpLimits,
    app: Any = _read_all,
    opened: socket.socket | None = None,
    tls: Callable[[Any, Any], ssl.SSLContext] | None = None,
) -> AsyncIterator[Listening]:
    opened = opened or open_socket("127.0.0.1:0")
    bounds, ready = ServerBounds(limits), asyncio.Event()
    config = quiet_config(app, stop_patience_s=1, lifespan="off", ssl_context_factory=tls)
    server = QuietServer(config, ready.set, bounds)
    task = asyncio.create_task(server.serve([opened]))
    await ready.wait()
    try:
        yield Listening(opened.getsockname()[1], bounds)
    finally:
        server.should_exit = True
        await task


@pytest.fixture
def far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """All clients have one address, which is not this machine's."""
    monkeypatch.setattr(bounded_listener, "counted_source", lambda *_: "203.0.113.5")


async def _answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    return head + await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))


@pytest.mark.usefixtures("far_away")
async def test_an_address_has_so_many_connections_and_its_idle_ones_make_room() -> None:
    async with serving(HttpLimits(100, 2)) as at:
        working = [await at.connect() for _ in range(2)]
        for _, writer in working:
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n1")
        await eventually(lambda: [connection.busy for connection in at.bounds.slots] == [True, True])
        reader, writer = await at.connect()
        assert b" 503 " in await reader.readline()
        assert at.refused(Refusal.ADDRESS_FULL) == 1
        await _close(writer)
        working[0][1].write(b"2")
        assert (await _answer(working[0][0])).endswith(b"2")

        async def served() -> bool:
            """Once the connection has been idle for a while."""
            reader, writer = await at.connect()
            try:
                writer.write(ASKED)
                return b" 200 " in await reader.readline()
            except ConnectionError:
                return False
            finally:
                await _close(writer)

        await eventually(served)
        assert at.refused(Refusal.DISPLACED) == 1
        assert await working[0][0].read() == b"", "the idle one was closed"
        working[1][1].write(b"2")
        assert (await _answer(working[1][0])).endswith(b"2"), "and not the one with a request under way"
        for _, writer in working:
            await _close(writer)


async def test_this_machine_is_bounded_only_in_all() -> None:
    async with serving(HttpLimits(100, 1)) as at:
        opened = [await at.connect() for _ in range(3)]
        for reader, writer in opened:
            writer.write(ASKED)
            assert b" 200 " in await _answer(reader)
        for _, writer in opened:
            await _close(writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError, ssl.SSLError):
        await writer.wait_closed()


class OutOfDescriptors(socket.socket):
    """A listening socket of a process that has no descriptor left, a few times."""

    times = 3

    def accept(self) -> Any:
        if OutOfDescriptors.times:
            OutOfDescriptors.times -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


async def test_without_descriptors_connections_wait_and_are_served_later() -> None:
    plain = open_socket("127.0.0.1:0")
    async with serving(HttpLimits(10, 10), opened=OutOfDescriptors(fileno=plain.detach())) as at:
        reader, writer = await at.connect()
        writer.write(ASKED)
        assert b" 200 " in await _answer(reader)
        assert at.refused(Refusal.NO_DESCRIPTORS) == 3
        await _close(writer)


async def test_a_client_that_is_made_to_wait_is_not_too_slow() -> None:
    """The application takes longer to begin than the body may take; the client could not send faster."""

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(6)
        await _read_all(scope, receive, send)

    limits = HttpLimits(10, 10, body_s=3, body_grace_s=1)
    async with serving(limits, slow) as at:
        reader, writer = await at.connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % 2**20 + b"x" * 2**20)
        assert (await _answer(reader)).endswith(str(2**20).encode())
        await _close(writer)


async def test_handshakes_that_do_not_come_count_and_are_given_up(tmp_path: Any) -> None:
    pair = new_pair()
    certificate, key = write_pair(pair, tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    async with serving(HttpLimits(10, 10, head_s=1), tls=lambda *_: context) as at:
        silent = [await at.connect() for _ in range(3)]
        await eventually(lambda: len(at.bounds.slots) == 3)
        await eventually(lambda: at.refused(Refusal.HANDSHAKE) == 3)
        assert len(at.bounds.slots) == 0
        for reader, writer in silent:
            assert await reader.read() == b""
            await _close(writer)
        reader, writer = await at.connect(trusting(pair))
        writer.write(ASKED)
        assert b" 200 " in await _answer(reader)
        await _close(writer)


async def test_a_server_that_is_cancelled_leaves_no_connection_open() -> None:
    opened, ready = open_socket("127.0.0.1:0"), asyncio.Event()
    config = quiet_config(_read_all, stop_patience_s=1, lifespan="off")
    server = QuietServer(config, ready.set, ServerBounds(HttpLimits(10, 10)))
    task = asyncio.create_task(server.serve([opened]))
    await ready.wait()
    reader, writer = await asyncio.open_connection("127.0.0.1", opened.getsockname()[1])
    writer.write(ASKED)
    await _answer(reader)
    task.cancel()
    await asyncio.wait([task])
    assert server.server_state.connections == set()
    with suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()

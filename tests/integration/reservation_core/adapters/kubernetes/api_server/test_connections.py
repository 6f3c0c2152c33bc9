"""Nothing stays open of a client that was closed: sockets are counted, over TLS, on both sorts of event loops."""

import asyncio
import gc
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop
from aiohttp import web
from yarl import URL

from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.ports.cluster import ClusterUnavailableError
from tests.integration.reservation_core.adapters.kubernetes.conftest import transport_to
from tests.kubernetes.kubeconfigs import write_kubeconfig
from tests.waiting import PATIENCE_S, eventually

CYCLES = 50


@dataclass
class Server:
    """An API server's manners over TLS: one object, a watch that goes on, and one path where nothing is ever said."""

    url: str = ""
    ca: bytes = b""
    silent: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """By the path; a watch says one line."""
        if request.path == "/silent":
            self.silent += 1
            await self.over.wait()
        if request.query.get("watch"):
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b'{"type": "BOOKMARK"}\n')
            await self.over.wait()
            return response
        return web.json_response({})


@asynccontextmanager
async def serving(certificate: tuple[Path, Path]) -> AsyncIterator[Server]:
    """A server of this event loop."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    server = Server(ca=certificate[0].read_bytes())
    runner = web.ServerRunner(web.Server(server.answer, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        server.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        server.over.set()
        await runner.cleanup()


async def ask(transport: Transport, server: Server) -> None:
    """A question with an answer."""
    await transport.request("GET", "/api")


async def read_a_little(transport: Transport, server: Server) -> None:
    """A stream that is let go of in its middle."""
    async with transport.stream("/api", query={"watch": True}, idle_s=30) as chunks:
        await anext(chunks)


async def give_up(transport: Transport, server: Server) -> None:
    """A question that whoever asks does not wait for to the end."""
    before = server.silent
    asking = asyncio.create_task(transport.request("GET", "/silent"))
    await eventually(lambda: server.silent > before)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def still_ask(transport: Transport, server: Server) -> None:
    """A question that is open when the client is closed."""
    before = server.silent
    asking = asyncio.create_task(transport.request("GET", "/silent"))
    await eventually(lambda: server.silent > before)
    await transport.close()
    with pytest.raises(ClusterUnavailableError):
        await asking


USES = [ask, read_a_little, give_up, still_ask]


def open_sockets(server: Server) -> int:
    """This process's connections to the server, seen from their clients' end."""
    port = URL(server.url).port
    found = psutil.Process().net_connections("tcp4")
    return len([connection for connection in found if connection.raddr[1:] == (port,)])


LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
Loop = Callable[[], asyncio.AbstractEventLoop]


def run(loop: Loop, work: Coroutine[Any, Any, None]) -> None:
    """What outlives the event loop is told as a ResourceWarning, which is an error."""
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(work)
    gc.collect()


@LOOPS
@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
def test_a_client_that_was_closed_has_no_socket(
    certificate: tuple[Path, Path], tmp_path: Path, use: Callable[[Transport, Server], Awaitable[None]], loop: Loop
) -> None:
    async def open_and_close() -> None:
        async with serving(certificate) as server:
            config = write_kubeconfig(tmp_path / "config", server.url, "token", ca=server.ca)
            for _ in range(CYCLES):
                transport = transport_to(config)
                await use(transport, server)
                await transport.close()
                assert open_sockets(server) == 0

    run(loop, open_and_close())


@dataclass
class Network:
    """What lies between: it carries bytes until it is cut, and then takes them and says nothing."""

    port: int = 0
    whole: bool = True

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One way of a connection, to its end."""
        while chunk := await reader.read(2**16):
            if self.whole:
                writer.write(chunk)
        if self.whole:
            writer.write_eof()


@asynccontextmanager
async def between(server: Server) -> AsyncIterator[Network]:
    """A network to the server, which is reached by this one's port."""
    network, connections, ends = Network(), set[asyncio.Task[Any]](), list[asyncio.StreamWriter]()
    target = URL(server.url)

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(target.host, target.port)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(network.carry(reader, back))
                both.create_task(network.carry(there, writer))
        finally:
            for end in (back, writer):
                end.transport.abort()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends.append(writer)
        connections.add(asyncio.create_task(connect(reader, writer)))

    listening = await asyncio.start_server(begin, "127.0.0.1", 0)
    network.port = listening.sockets[0].getsockname()[1]
    yield network
    listening.close()
    for connection in connections:
        connection.cancel()
    await asyncio.gather(*connections, return_exceptions=True)
    for end in ends:  # also of connections that were not through yet
        end.transport.abort()
        await asyncio.gather(end.wait_closed(), return_exceptions=True)
    await listening.wait_closed()


async def give_up_in_silence(transport: Transport, server: Server, network: Network) -> None:
    """A question, the network's end, and then the end of all patience."""
    asking = asyncio.create_task(transport.request("GET", "/silent"))
    await eventually(lambda: server.silent)
    network.whole = False
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def connect_in_silence(transport: Transport, server: Server, network: Network) -> None:
    """A question that has not got through to anybody when the client is closed."""
    network.whole = False
    asking = asyncio.create_task(transport.request("GET", "/api"))
    await eventually(lambda: open_sockets(server))
    await transport.close()
    assert open_sockets(server) == 0
    with pytest.raises(ClusterUnavailableError):
        await asking


async def let_go_in_silence(transport: Transport, server: Server, network: Network) -> None:
    """A stream that is let go of: its socket goes with it, and not only with the client."""
    async with transport.stream("/api", query={"watch": True}, idle_s=30) as chunks:
        await anext(chunks)
        network.whole = False
    await eventually(lambda: open_sockets(server) == 0)


@LOOPS
@pytest.mark.parametrize(
    "use", [give_up_in_silence, connect_in_silence, let_go_in_silence], ids=lambda use: use.__name__
)
def test_a_silent_network_keeps_no_socket_of_a_client_that_is_closed(
    certificate: tuple[Path, Path],
    tmp_path: Path,
    use: Callable[[Transport, Server, Network], Awaitable[None]],
    loop: Loop,
) -> None:
    """TLS would wait for the other side's farewell for half a minute."""

    async def open_cut_and_close() -> None:
        async with serving(certificate) as server, between(server) as network:
            server.url = f"https://127.0.0.1:{network.port}"
            transport = transport_to(write_kubeconfig(tmp_path / "config", server.url, "token", ca=server.ca))
            await use(transport, server, network)
            await transport.close()
            assert open_sockets(server) == 0

    run(loop, open_cut_and_close())


@LOOPS
def test_who_reads_a_stream_of_a_client_that_is_closed_is_told(
    certificate: tuple[Path, Path], tmp_path: Path, loop: Loop
) -> None:
    async def read_and_close() -> None:
        async with serving(certificate) as server:
            transport = transport_to(write_kubeconfig(tmp_path / "config", server.url, "token", ca=server.ca))
            async with transport.stream("/api", query={"watch": True}, idle_s=3600) as chunks:
                await anext(chunks)
                following = asyncio.ensure_future(anext(chunks))
                await asyncio.sleep(0)
                await transport.close()
                with pytest.raises(ClusterUnavailableError):
                    await asyncio.wait_for(following, PATIENCE_S)

    run(loop, read_and_close())


@LOOPS
def test_who_still_uses_a_client_that_was_replaced_does_not_outlast_the_end(
    certificate: tuple[Path, Path], tmp_path: Path, loop: Loop
) -> None:
    async def rotate_and_close() -> None:
        async with serving(certificate) as server:
            config = tmp_path / "config"
            write_kubeconfig(config, server.url, "token", ca=server.ca)
            transport = transport_to(config, 3600)
            async with transport.stream("/api", query={"watch": True}, idle_s=3600) as chunks:
                await anext(chunks)
                following = asyncio.ensure_future(anext(chunks))
                asking = asyncio.create_task(transport.request("GET", "/silent"))
                await eventually(lambda: server.silent)
                write_kubeconfig(config, server.url, "token", ca=server.ca + b"\n")
                await transport._load(afresh=True)
                await transport.request("GET", "/api")
                assert open_sockets(server) == 3
                await transport.close()
                assert open_sockets(server) == 0
                for waiting in (following, asking):
                    with pytest.raises(ClusterUnavailableError):
                        await asyncio.wait_for(waiting, PATIENCE_S)

    run(loop, rotate_and_close())


@LOOPS
def test_a_client_that_was_replaced_has_no_socket(certificate: tuple[Path, Path], tmp_path: Path, loop: Loop) -> None:
    """Credentials that change are a new client; the old one goes with the last stream that it has."""

    async def rotate() -> None:
        async with serving(certificate) as server:
            config = tmp_path / "config"
            write_kubeconfig(config, server.url, "token", ca=server.ca)
            transport = transport_to(config)
            for number in range(1, CYCLES + 1):
                async with transport.stream("/api", query={"watch": True}, idle_s=30) as chunks:
                    await anext(chunks)
                    write_kubeconfig(config, server.url, "token", ca=server.ca + b"\n" * (number % 2))
                    await transport._load(afresh=True)
                    await transport.request("GET", "/api")
                assert open_sockets(server) == 1
            await transport.close()
            assert open_sockets(server) == 0

    run(loop, rotate())

"""Connections that an application took over, on the event loop that servers run on."""

import asyncio

import uvloop

from reservation_core.runtime.http.tunnels import Tunnel


class Client(asyncio.Protocol):
    def __init__(self) -> None:
        self.left = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.left.set()


def test_bytes_for_a_client_that_has_left_are_dropped() -> None:
    async def write_late() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        async with server:
            transport, client = await loop.create_connection(Client, *server.sockets[0].getsockname())
            transport.abort()
            await client.left.wait()
            tunnel = Tunnel(asyncio.StreamReader(), transport, lambda: asyncio.sleep(0), transport.close)
            await tunnel.write(b"late")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(write_late())

"""Connections that an application took over, on the event loop that servers run on."""

import asyncio
import socket
from typing import Any

import pytest
import uvloop

from reservation_core.domain.network.http_limits import HttpLimits, Refusal
from reservation_core.runtime.http import tunnels
from reservation_core.runtime.http.bounded_protocol import ServerBounds
from reservation_core.runtime.http.serving import QuietServer, open_socket, quiet_config
from reservation_core.runtime.http.tunnels import TUNNEL, Tunnel
from tests.waiting import eventually

_UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
_RESUMED_BYTES = 16 * 1024
"""Of what waits for a client: with so little the transport lets the application write again."""


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


async def test_a_client_that_stops_taking_the_last_bytes_of_a_closed_tunnel_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tunnels, "STALLED_S", 0.5)
    unsent: list[asyncio.Transport] = []

    async def app(scope: Any, *_: Any) -> None:
        tunnel: Tunnel = scope["extensions"][TUNNEL]()
        unsent.append(tunnel._transport)
        tunnel._transport.write(bytes(200_000))
        tunnel.close()

    loop = asyncio.get_running_loop()
    opened = open_socket("127.0.0.1:0")
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    bounds, ready = ServerBounds(HttpLimits(connections=9, connections_per_address=9)), asyncio.Event()
    config = quiet_config(app, stop_patience_s=1, lifespan="off", websockets=True)
    server = QuietServer(config, ready.set, bounds, tunnels=lambda _: True)
    serving = asyncio.create_task(server.serve([opened]))
    await ready.wait()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        await loop.sock_connect(client, opened.getsockname())
        await loop.sock_sendall(client, _UPGRADE)
        await eventually(lambda: unsent)
        while unsent[0].get_write_buffer_size() > _RESUMED_BYTES:
            assert await loop.sock_recv(client, 1024)
        assert unsent[0].get_write_buffer_size() > 0
        await eventually(lambda: bounds.refusals.counts[Refusal.READER_TOO_SLOW] == 1)
    server.should_exit = True
    await serving

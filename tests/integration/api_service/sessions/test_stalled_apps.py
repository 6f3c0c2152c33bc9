"""Browsers that take nothing of what an app sends: they lose their connection after a while, and slow ones do not."""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from reservation_core.runtime.http import tunnels
from tests.integration.api_service.sessions.test_apps import AppAddress, app, inside, ticket_of
from tests.waiting import PATIENCE_S, eventually

__all__ = ["app", "inside", "ticket_of"]

_MESSAGE = os.urandom(500_000)


@asynccontextmanager
async def _echoing(app: AppAddress, inside: httpx.AsyncClient) -> AsyncIterator[ClientConnection]:
    """A WebSocket to the app, which sends back what it gets."""
    host, port = app.served.base_url.removeprefix("http://").split(":")
    headers = {"Cookie": inside.headers["Cookie"]}
    async with connect(
        f"ws://{app.host}/socket",
        origin=f"http://{app.host}",  # type: ignore[arg-type]
        additional_headers=headers,
        host=host,
        port=int(port),
        proxy=None,
        max_size=None,
        ping_interval=None,
        open_timeout=PATIENCE_S,
        close_timeout=1,
    ) as socket:
        yield socket


async def _fill(socket: ClientConnection) -> int:
    """Send until the app waits, because nobody takes what it sends back; the number of messages."""
    for number in range(10_000):
        try:
            async with asyncio.timeout(0.5):
                await socket.send(_MESSAGE)
        except TimeoutError:
            return number
    raise AssertionError("nobody waits")


async def _cut_off(app: AppAddress) -> int:
    """The number of clients that were disconnected because they took nothing."""
    async with httpx.AsyncClient(base_url=app.served.base_url, trust_env=False, timeout=PATIENCE_S) as http:
        [number] = re.findall(r'refused_total\{reason="reader_too_slow"\} (\d+)', (await http.get("/metrics")).text)
    return int(number)


async def test_a_browser_that_takes_nothing_is_disconnected_and_counted(
    app: AppAddress, inside: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnels, "STALLED_S", 0.5)
    [use] = app.served.app.apps._in_use._uses.values()
    before = await _cut_off(app)
    with suppress(ConnectionClosed):
        async with _echoing(app, inside) as socket:
            socket.transport.pause_reading()
            await eventually(lambda: use.requests == 1)
            await _fill(socket)

            async def is_cut_off() -> bool:
                return await _cut_off(app) == before + 1

            await eventually(is_cut_off)
            await eventually(lambda: use.requests == 0)
            socket.transport.abort()


async def test_a_browser_that_takes_a_little_now_and_then_goes_on(
    app: AppAddress, inside: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await _cut_off(app)
    async with _echoing(app, inside) as socket:
        socket.transport.pause_reading()
        filled = await _fill(socket)
        monkeypatch.setattr(tunnels, "STALLED_S", 5)
        socket.transport.resume_reading()
        for _ in range(filled):
            assert await socket.recv() == _MESSAGE
    assert await _cut_off(app) == before

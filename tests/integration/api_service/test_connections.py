"""Connections that are used again and again."""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from api_service.app import create_app
from api_service.server import serve
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.wiring import Runtime

LONGEST_OF_CALLERS_S = 90
"""As long as the usual clients and proxies keep an idle connection for its next request."""
ASKED = b"GET /healthz HTTP/1.1\r\nHost: api\r\n\r\n"


@pytest.fixture
async def address(runtime: Runtime, settings: ApiSettings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """Where the application is served. It ends before the loop's clock is put back: no pause becomes longer by that."""
    stop = asyncio.Event()
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve(create_app(runtime, settings), "127.0.0.1:0", stop=stop, ready=listening.set_result)
    )
    yield await listening
    stop.set()
    await serving


async def test_an_idle_connection_is_the_callers_to_close(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The side that closes it first must not be the one that can't know whether a request is under way."""
    place = urlsplit(address)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    loop = asyncio.get_running_loop()
    real = loop.time

    async def status() -> bytes:
        writer.write(ASKED)
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
        return head.split(b" ")[1]

    try:
        assert await status() == b"200"
        monkeypatch.setattr(loop, "time", lambda: real() + LONGEST_OF_CALLERS_S)
        await asyncio.sleep(0.001)  # a turn of the loop at that time, in which all that is due by then is done
        assert await status() == b"200"
    finally:
        writer.close()
        await writer.wait_closed()

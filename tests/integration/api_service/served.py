"""The API on a port of its own, inside the test's event loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from api_service.app import create_app
from api_service.server import serve
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.wiring import Runtime
from tests.waiting import PATIENCE_S


class Served:
    """The API on a port of its own."""

    def __init__(self, base_url: str, app: FastAPI, stop: asyncio.Event, serving: "asyncio.Task[None]") -> None:
        self.base_url = base_url
        self.app = app
        self.stop = stop
        self.serving = serving


@asynccontextmanager
async def serving(runtime: Runtime, settings: ApiSettings) -> AsyncIterator[Served]:
    """Serve the API during the block."""
    app = create_app(runtime, settings)
    stop = asyncio.Event()
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(app, "127.0.0.1:0", stop=stop, ready=ready.set_result))
    try:
        yield Served(await asyncio.wait_for(ready, PATIENCE_S), app, stop, task)
    finally:
        stop.set()
        await asyncio.wait_for(task, PATIENCE_S)

"""A site over real HTTP whose answers a test decides, for what the pages' scripts do when a server is not itself."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from tests.programs.ports import own_port
from tests.waiting import eventually
from tests.web.browser import ROOT

BUILT = ROOT / "api_service" / "web" / "built"
# As strict as that of the product's own pages.
POLICY = (
    "default-src 'none'; script-src 'nonce-n'; style-src 'self' 'nonce-n'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


class ScriptedSite:
    """`pages` by their paths; what is built at /built/; a stream at /live that answers `live_status`, with words.

    An answer of a path in `slow` comes after its event.
    """

    def __init__(self) -> None:
        self.port = own_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.pages: dict[str, str] = {}
        self.parts: dict[str, tuple[int, str]] = {}
        self.asked: Counter[str] = Counter()
        self.sent: list[dict[str, str]] = []
        self.slow: dict[str, asyncio.Event] = {}
        self.live_asked: list[str] = []
        self.live_status = 200
        self.live_detail = ""
        self.streams: set[web.StreamResponse] = set()
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen, where it did before."""
        app = web.Application()
        app.add_routes([web.get("/live", self._live), web.get("/built/{name}", _built), web.route("*", "/cut", _cut)])
        app.add_routes([web.route("*", "/{path:.*}", self._page)])
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()

    async def stop(self) -> None:
        """Be gone: connections are cut, and new ones refused."""
        if self._runner is not None:
            self.cut()
            await self._runner.cleanup()
            self._runner = None

    async def streams_are(self, count: int) -> None:
        """Wait until so many streams are open."""
        await eventually(lambda: len(self.streams) == count)

    async def tell(self, topic: str, version: int = 1) -> None:
        """Send an event on every open stream."""
        for stream in self.streams:
            await stream.write(f"event: {topic}\ndata: {version}\n\n".encode())

    def cut(self) -> None:
        """End every open stream."""
        for stream in self.streams:
            if stream._req is not None and stream._req.transport is not None:
                stream._req.transport.close()

    async def _page(self, request: web.Request) -> web.Response:
        self.asked[request.path] += 1
        if request.method == "POST":
            self.sent.append({name: str(value) for name, value in (await request.post()).items()})
        if request.path in self.slow:
            await self.slow[request.path].wait()
        headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store"}
        if request.path in self.parts:
            status, part = self.parts[request.path]
            return web.Response(status=status, text=part, content_type="text/html", headers=headers)
        if request.path == "/favicon.ico":
            return web.Response(status=204)
        if request.path not in self.pages:
            raise web.HTTPNotFound
        return web.Response(text=self.pages[request.path], content_type="text/html", headers=headers)

    async def _live(self, request: web.Request) -> web.StreamResponse:
        self.live_asked.append(request.query_string)
        if self.live_status != 200:
            return web.json_response({"detail": self.live_detail}, status=self.live_status)
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await stream.prepare(request)
        await stream.write(b"retry: 100\n\n")
        self.streams.add(stream)
        try:
            # Until the other side has gone.
            await asyncio.Event().wait()
        finally:
            self.streams.discard(stream)
        return stream


async def _built(request: web.Request) -> web.FileResponse:
    return web.FileResponse(BUILT / Path(request.match_info["name"]).name)


async def _cut(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.close()
    return web.Response()


@asynccontextmanager
async def scripted_site() -> AsyncIterator[ScriptedSite]:
    """One that listens, as long as the block runs."""
    site = ScriptedSite()
    await site.start()
    try:
        yield site
    finally:
        await site.stop()

"""The part of a kubelet that API servers ask for logs: `GET /containerLogs/{namespace}/{pod}/{container}`.

The same server has the streams of `kubelet_streams`.
"""

import ssl
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType

from aiohttp import web

from tests.kubernetes.node.containers import Container
from tests.kubernetes.node.streams import add_streams

FindLog = Callable[[str, str], Container | str | None]


class LogServer:
    """Serves while it is entered; entering gives the port. With `tls_folder` over TLS, its certificate made there."""

    def __init__(self, find: FindLog, *, tls_folder: Path | None) -> None:
        self._find = find
        self._tls_folder = tls_folder
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> int:
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._answer)
        self.streams = add_streams(app, self._find)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        context = None if self._tls_folder is None else _certificate(self._tls_folder)
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context).start()
        return int(self._runner.addresses[0][1])

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, at: TracebackType | None
    ) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        found = self._find(request.match_info["namespace"], request.match_info["pod"])
        if found is None:
            return web.Response(status=404, text=f"pod {request.match_info['pod']!r} does not exist")
        if isinstance(found, str):
            return web.Response(status=400, text=found)
        query = request.query
        since = None
        if "sinceTime" in query:
            since = datetime.fromisoformat(query["sinceTime"])
        elif "sinceSeconds" in query:
            since = datetime.now(UTC) - timedelta(seconds=int(query["sinceSeconds"]))
        tail = int(query["tailLines"]) if "tailLines" in query else None
        stamped = query.get("timestamps") == "true"
        left = int(query["limitBytes"]) if "limitBytes" in query else None
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        try:
            begins = True
            async for time, line in found.log.read(tail=tail, since=since, follow=query.get("follow") == "true"):
                stamp = f"{time.isoformat().replace('+00:00', 'Z')} ".encode() if stamped and begins else b""
                said, begins = stamp + line, line.endswith(b"\n")
                await response.write(said if left is None else said[:left])
                if left is not None:
                    left -= len(said)
                    if left <= 0:
                        break
            await response.write_eof()
        except ConnectionError:
            return response  # the reader has gone
        return response


def _certificate(folder: Path) -> ssl.SSLContext:
    certificate, key = folder / "kubelet.crt", folder / "kubelet.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test-kubelet"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context

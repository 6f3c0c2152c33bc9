"""Pass one request on to an app in a job, and its answer back, both as they come.

A side that does not read makes the other wait. An upgrade that the app accepts passes bytes in both directions.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import h11
from starlette.types import Receive, Send

from api_service.apps.exchange_headers import Headers, response_headers
from reservation_core.ports.sessions.pod_streams import InputClosedError, PodConnection
from reservation_core.runtime.http.tunnels import TUNNEL, Tunnel
from reservation_core.runtime.sessions.connections import Connection

_MOST_HEAD_BYTES = 64 * 1024
_SWITCHING = 101


class AppFailedError(Exception):
    """The app's answer is not HTTP, or ended too early. The text says so."""


class _LeftError(Exception):
    """The browser has gone."""


@dataclass(slots=True)
class Relay:
    """One request. `began` is whether the browser has the head of an answer."""

    scope: Mapping[str, Any]
    receive: Receive
    send: Send
    app: PodConnection
    connection: Connection
    began: bool = False
    status: int = 0

    async def run(self, headers: Headers) -> None:
        """Pass request and answer on. Raises AppFailedError and ClusterUnavailableError.

        It ends early when the browser leaves, or may not be in the job any more.
        """
        http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MOST_HEAD_BYTES)
        query: bytes = self.scope["query_string"]
        target = self.scope["raw_path"] + (b"?" + query if query else b"")
        try:
            request = h11.Request(method=self.scope["method"], target=target, headers=headers)
            await self._write(http.send(request))
            with suppress(_LeftError):
                await first_of(self._download(http), self._upload(http), self.connection.over.wait())
        except h11.ProtocolError as error:
            raise AppFailedError("The app's answer is not HTTP, or ended too early.") from error

    async def _write(self, data: bytes | None) -> None:
        if data:
            self.connection.note_bytes()
            await self.app.write(data)

    async def _upload(self, http: h11.Connection) -> None:
        """Pass the request's body on, then wait until the browser leaves, and raise _LeftError."""
        takes = True
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                if self.status == _SWITCHING:
                    await asyncio.Future()  # the connection was taken over, and is at its end when its bytes are
                raise _LeftError
            if not takes:
                continue
            try:
                if body := message.get("body"):
                    await self._write(http.send(h11.Data(data=body)))
                if not message.get("more_body"):
                    takes = False
                    await self._write(http.send(h11.EndOfMessage()))
            except InputClosedError:
                takes = False  # it has heard enough; its answer comes

    async def _download(self, http: h11.Connection) -> None:
        while True:
            event = http.next_event()
            match event:
                case h11.NEED_DATA:
                    data = await self.app.read()
                    self.connection.note_bytes()
                    http.receive_data(data)
                case h11.InformationalResponse(status_code=101):
                    await self._pass_bytes(event, http)
                    return
                case h11.Response():
                    await self._start(event)
                case h11.Data():
                    await self.send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
                case h11.EndOfMessage():
                    await self.send({"type": "http.response.body", "body": b"", "more_body": False})
                    return
                case h11.InformationalResponse():
                    continue
                case _:
                    raise AppFailedError("The app closed the connection without an answer.")

    async def _start(self, response: h11.Response) -> None:
        self.began, self.status = True, response.status_code
        headers = response_headers(response.headers)
        await self.send({"type": "http.response.start", "status": response.status_code, "headers": headers})

    async def _pass_bytes(self, response: h11.InformationalResponse, http: h11.Connection) -> None:
        """The app has accepted an upgrade: from here on it talks with the browser itself."""
        opens = self.scope.get("extensions", {}).get(TUNNEL)
        if opens is None:
            raise AppFailedError("The app switched to another protocol, which nobody had asked for.")
        tunnel: Tunnel = opens()
        self.began, self.status = True, _SWITCHING
        try:
            lines = [b"HTTP/1.1 101 Switching Protocols", b"connection: Upgrade", b"upgrade: websocket"]
            lines += [b"%s: %s" % header for header in response_headers(response.headers)]
            early, _ = http.trailing_data
            await tunnel.write(b"\r\n".join(lines) + b"\r\n\r\n" + early)
            await first_of(self._outward(tunnel), self._inward(tunnel))
        finally:
            tunnel.close()

    async def _outward(self, tunnel: Tunnel) -> None:
        while data := await self.app.read():
            self.connection.note_bytes()
            await tunnel.write(data)

    async def _inward(self, tunnel: Tunnel) -> None:
        with suppress(InputClosedError):
            while data := await tunnel.read():
                await self._write(data)


async def first_of(*running: Awaitable[Any]) -> None:
    """Run several things until one has ended; the others are cancelled. Raises what it raised."""
    tasks = [asyncio.ensure_future(one) for one in running]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

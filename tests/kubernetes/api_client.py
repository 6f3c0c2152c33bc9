"""The few calls that the test cluster itself makes to an API server: plain HTTP and JSON, no client library."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Self

import aiohttp

JsonObject = dict[str, Any]
MERGE = "application/merge-patch+json"
_PATIENCE_S = 120.0
STRATEGIC = "application/strategic-merge-patch+json"


class ApiAnswerError(Exception):
    """The server answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class WatchBrokenError(Exception):
    """A watch ended with an error; list again."""


class ApiClient:
    """One server, one identity. `ca` is the PEM to trust, None for plain HTTP. Belongs to one event loop."""

    def __init__(self, url: str, token: str, ca: bytes | None = None) -> None:
        self._url = url
        context = ssl.create_default_context(cadata=ca.decode()) if ca is not None else True
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {token}"},
            connector=aiohttp.TCPConnector(ssl=context, limit=64),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._session.close()
        for _ in range(3):  # connections that were cut are closed in the loop's next rounds
            await asyncio.sleep(0)

    async def call(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json", **query: str
    ) -> JsonObject:
        """Raises ApiAnswerError for anything but success. A server that can't be reached is asked for a while."""
        clock = asyncio.get_running_loop().time
        give_up_at = clock() + _PATIENCE_S
        while True:
            try:
                return await self._call(method, path, body, content_type, query)
            except aiohttp.ClientConnectionError:
                if clock() > give_up_at:
                    raise
            await asyncio.sleep(0.05)

    async def _call(self, method: str, path: str, body: Any, content_type: str, query: Mapping[str, str]) -> JsonObject:
        data = None if body is None else json.dumps(body)
        headers = {} if body is None else {"Content-Type": content_type}
        async with self._session.request(method, self._url + path, data=data, headers=headers, params=query) as answer:
            content = await answer.read()
            if answer.status >= 300:
                raise ApiAnswerError(answer.status, content.decode(errors="replace")[:2000])
            return dict(json.loads(content)) if content and answer.content_type == "application/json" else {}

    async def text(self, path: str, **query: str) -> str:
        """An answer that is not JSON."""
        async with self._session.get(self._url + path, params=query) as answer:
            content = await answer.text()
            if answer.status >= 300:
                raise ApiAnswerError(answer.status, content[:2000])
            return content

    async def lines(self, path: str, **query: str) -> AsyncIterator[str]:
        """An answer that is not JSON, line by line as it comes."""
        async with self._session.get(self._url + path, params=query) as answer:
            if answer.status >= 300:
                raise ApiAnswerError(answer.status, (await answer.text())[:2000])
            async for line in answer.content:
                yield line.decode()

    async def try_call(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json"
    ) -> bool:
        """Whether it was done; False where the object is not there (404) or has changed (409)."""
        try:
            await self.call(method, path, body, content_type=content_type)
        except ApiAnswerError as problem:
            if problem.code in (404, 409):
                return False
            raise
        return True

    async def follow(self, path: str, **query: str) -> AsyncIterator[tuple[str, JsonObject]]:
        """Every object as ADDED, then every change; after a broken watch, from the start.

        `RELIST` comes before each list: what is not named again until `LISTED` is gone.
        """
        while True:
            listed = await self.call("GET", path, **query)
            yield "RELIST", {}
            for item in listed["items"]:
                yield "ADDED", item
            yield "LISTED", {}
            try:
                async for event in self._watch(path, listed["metadata"]["resourceVersion"], **query):
                    yield event
            except (WatchBrokenError, aiohttp.ClientError):
                continue

    async def _watch(self, path: str, version: str, **query: str) -> AsyncIterator[tuple[str, JsonObject]]:
        while True:
            asked = {**query, "watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true"}
            async with self._session.get(self._url + path, params=asked, read_bufsize=2**22) as answer:
                try:
                    if answer.status != 200:
                        raise WatchBrokenError(await answer.text())
                    async for line in answer.content:
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            raise WatchBrokenError(line.decode())
                        version = event["object"]["metadata"]["resourceVersion"]
                        if event["type"] != "BOOKMARK":
                            yield event["type"], event["object"]
                finally:
                    break_off(answer)


def break_off(answer: aiohttp.ClientResponse) -> None:
    """Without TLS's farewell, which would outlast the event loop."""
    if answer.connection is not None and answer.connection.transport is not None:
        answer.connection.transport.abort()

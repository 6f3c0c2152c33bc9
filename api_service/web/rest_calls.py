"""Asking REST from within the same process: pages can do what REST can, under the same rules, and nothing else.

A call goes to the very routes that requests go to, past the network and the gate; whose call it is comes from the
browser's session. What REST would answer with a problem is raised as one.
"""

import json
from collections.abc import AsyncIterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlencode

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive

from api_service.access import token_reach
from api_service.problems import of_exception
from reservation_core.ports.people.identities import Principal

_PAGE = 500
Query = Mapping[str, str | int | bool | Sequence[str] | None]


@dataclass(frozen=True, slots=True)
class RestAnswer:
    """What a call answered: `body` as read from JSON (None when there is none), header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: Any


class RestProblemError(Exception):
    """A call that was refused; `problem` is the body of the problem (RFC 9457)."""

    def __init__(self, status: int, problem: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        super().__init__(str(problem.get("detail", "")))
        self.status = status
        self.problem = problem
        self.headers = headers or {}

    @property
    def code(self) -> str:
        """The last part of the problem's type, such as `not_bookable`."""
        return str(self.problem.get("type", "")).rpartition(":")[2]

    @property
    def detail(self) -> str:
        """The problem, and what to do about it."""
        return str(self.problem.get("detail", ""))

    @property
    def rules(self) -> list[str]:
        """Every rule that is broken, in words."""
        return [str(rule["detail"]) for rule in self.problem.get("broken_rules") or []]

    @property
    def slots(self) -> list[Mapping[str, str]]:
        """The nearest slots that would do: start and end, as RFC 3339 has them."""
        return list(self.problem.get("nearest_slots") or [])


@dataclass(slots=True)
class _Received:
    """An answer as it comes."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    parts: list[bytes] = field(default_factory=list)

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in message["headers"]}
        else:
            self.parts.append(message.get("body", b""))


class RestCalls:
    """Calls of one caller, as part of the browser's request `request`. `routes` is what serves REST."""

    def __init__(self, routes: ASGIApp, request: Request, principal: Principal) -> None:
        self._routes = routes
        self._request = request
        self._principal = principal

    async def get(self, path: str, query: Query | None = None) -> Any:
        """What GET answers. Raises RestProblemError."""
        return (await self.call("GET", path, query=query)).body

    async def all(self, path: str, query: Query | None = None, *, at_most: int = 10_000) -> list[Any]:
        """All items of a list, page by page, the first `at_most`. Raises RestProblemError."""
        items: list[Any] = []
        async for item in self._items(path, dict(query or {})):
            items.append(item)
            if len(items) == at_most:
                break
        return items

    async def post(self, path: str, body: object = None, *, key: str | None = None, query: Query | None = None) -> Any:
        """What POST answers; `key` is the Idempotency-Key. Raises RestProblemError."""
        return (await self.call("POST", path, body=body, key=key, query=query)).body

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: object = None,
        key: str | None = None,
        match: str | None = None,
    ) -> RestAnswer:
        """Any call; `match` is the ETag that must still be right. `path` is percent-encoded where it must be.

        Raises RestProblemError.
        """
        if "%2f" in path.lower():
            # No id has a slash: one that was typed must not become another address.
            raise RestProblemError(404, {"detail": "There is nothing of this id. Look for it in the list."})
        content = b"" if body is None else json.dumps(body).encode()
        scope = self._scope(method, path, query or {}, _headers(len(content), key, match, json_comes=body is not None))
        received = _Received()
        try:
            token_reach.require(self._principal, method, path)
            await self._routes(scope, _sending(content), received)
        except Exception as error:
            problem = of_exception(error, Request(scope))
            if problem is None:
                raise
            raise RestProblemError(problem.status_code, json.loads(bytes(problem.body)), problem.headers) from error
        text = b"".join(received.parts)
        json_comes = "json" in received.headers.get("content-type", "")
        found = json.loads(text) if text and json_comes else text.decode() or None
        if received.status >= 400:
            problem_body = found if isinstance(found, dict) else {"detail": str(found)}
            raise RestProblemError(received.status, problem_body, received.headers)
        return RestAnswer(received.status, received.headers, found)

    def _scope(
        self, method: str, path: str, query: Query, headers: list[tuple[bytes, bytes]]
    ) -> MutableMapping[str, Any]:
        """The call as a server would have it; whose it is, the gate has said already."""
        browsers = self._request.scope
        return {
            "type": "http",
            "asgi": browsers.get("asgi", {"version": "3.0"}),
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": _query(query).encode(),
            "headers": headers,
            "client": browsers.get("client"),
            "server": browsers.get("server"),
            "state": {},
            "app": self._request.app,
            "principal": self._principal,
            "request_id": browsers.get("request_id"),
        }

    async def _items(self, path: str, query: dict[str, Any]) -> AsyncIterator[Any]:
        query.setdefault("limit", _PAGE)
        while True:
            page = await self.get(path, query)
            for item in page["items"]:
                yield item
            if page.get("next_cursor") is None:
                return
            query["cursor"] = page["next_cursor"]


def _headers(length: int, key: str | None, match: str | None, *, json_comes: bool) -> list[tuple[bytes, bytes]]:
    named = {
        "host": "localhost",
        "content-length": str(length),
        "content-type": "application/json" if json_comes else None,
        "idempotency-key": key,
        "if-match": match,
    }
    return [(name.encode(), value.encode()) for name, value in named.items() if value is not None]


def _sending(content: bytes) -> Receive:
    """A body that comes at once, and then nothing more."""
    messages: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]

    async def receive() -> Message:
        return messages.pop() if messages else {"type": "http.disconnect"}

    return receive


def _query(given: Query) -> str:
    pairs: list[tuple[str, str]] = []
    for name, value in given.items():
        if value is None:
            continue
        if isinstance(value, bool):
            pairs.append((name, "true" if value else "false"))
        elif isinstance(value, str | int):
            pairs.append((name, str(value)))
        else:
            pairs.extend((name, choice) for choice in value)
    return urlencode(pairs)

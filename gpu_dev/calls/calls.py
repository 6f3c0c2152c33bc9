"""The base of all groups of calls: requests and answers as classes, and lists page by page."""

import uuid
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from msgspec import Struct

from gpu_dev.server.exchange import Answer, Exchange, Request, read_answer, version_of
from gpu_dev.wire.base import Page

T = TypeVar("T")
S = TypeVar("S", bound=Struct)

PAGE = 500


class Calls:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def _get(self, model: type[S], path: str, params: Mapping[str, Any] | None = None) -> S:
        return _read(model, self._exchange.send("GET", path, params=params))

    def _post(
        self,
        model: type[S],
        path: str,
        body: Request | None = None,
        *,
        idempotency_key: str | None = None,
        if_match: str | None = None,
    ) -> S:
        headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4()), **_if_match(if_match)}
        return _read(model, self._exchange.send("POST", path, body=body, headers=headers))

    def _change(
        self,
        method: str,
        model: type[S],
        path: str,
        body: Request | None = None,
        *,
        if_match: str | None = None,
        **more: Any,
    ) -> S:
        """PUT, PATCH or DELETE; `more` are query parameters."""
        return _read(model, self._exchange.send(method, path, body=body, params=more, headers=_if_match(if_match)))

    def _items(self, model: type[Page[T]], path: str, params: Mapping[str, Any] | None = None) -> Iterator[T]:
        query: dict[str, Any] = {**(params or {}), "limit": PAGE}
        while True:
            page = _read(model, self._exchange.send("GET", path, params=query))
            yield from page.items
            if page.next_cursor is None:
                return
            query["cursor"] = page.next_cursor


def _read(model: type[S], response: Answer) -> S:
    return read_answer(model, response.content, server_version=version_of(response))


def given(**params: Any) -> dict[str, Any]:
    """Query parameters without those that are None."""
    return {name.rstrip("_"): value for name, value in params.items() if value is not None}


def _if_match(tag: str | None) -> dict[str, str]:
    return {} if tag is None else {"If-Match": tag}

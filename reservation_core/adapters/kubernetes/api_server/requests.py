"""Requests to the API server and its answers, for both HTTP clients."""

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import msgspec

JSON = "application/json"

_USER_AGENT = "gpu-dev-server"
_PLAIN = re.compile(r"[A-Za-z0-9._-]*")
_LONGEST_WAIT_DIGITS = 6

Query = Mapping[str, str | int | bool | tuple[str, ...] | None]
"""A tuple repeats its key."""


@dataclass(slots=True)
class ApiServerAnswer:
    status: int
    body: bytes
    asked_pause: str | None
    """The text of `Retry-After`."""

    @property
    def retry_after(self) -> float | None:
        """The pause in seconds; None where `Retry-After` is absent or a date."""
        text = self.asked_pause
        return float(text) if text is not None and text.isdecimal() and len(text) <= _LONGEST_WAIT_DIGITS else None


@dataclass(slots=True)
class ApiRequest:
    """A request with all its attempts. `idle_s` is set for a stream, `head_s` for one that begins late (seconds).

    `protocols` are set for a WebSocket, the preferred one first.
    """

    method: str
    path: str
    query: Query | None
    body: bytes | None = None
    content_type: str = JSON
    accept: str = JSON
    idle_s: float | None = None
    head_s: float | None = None
    unanswered: Callable[[], None] | None = None
    final: Collection[int] = ()
    protocols: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def target(self) -> str:
        """Path and query; the path unquoted."""
        return self.path if self.query is None else self.path + encoded(self.query)

    def note_unanswered(self) -> None:
        """Report that an attempt was sent and may be carried out later."""
        if self.unanswered is not None:
            self.unanswered()

    def headers(self) -> dict[str, str]:
        """The headers of this request, without the common ones."""
        headers = {"Accept": f"{self.accept}, */*"}
        if self.body is not None:
            headers["Content-Type"] = self.content_type
        return headers


def common_headers(token: str | None) -> dict[str, str]:
    """The headers of every request; `token` with its scheme."""
    # Uncompressed: within a data centre, compressing a list takes longer than sending it.
    headers = {"Accept-Encoding": "identity", "User-Agent": _USER_AGENT}
    if token is not None:
        headers["Authorization"] = token
    return headers


def encode_body(thing: Mapping[str, Any]) -> bytes:
    """Encode an object as JSON."""
    try:
        return msgspec.json.encode(thing)
    except UnicodeEncodeError:  # a lone surrogate, which JSON can only hold escaped
        return json.dumps(thing).encode()


def encoded(query: Query) -> str:
    """Encode a query with its question mark; empty for an empty query. None values are left out."""
    values = {
        key: value if isinstance(value, str | tuple) else str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in query.items()
        if value is not None
    }
    if not values:
        return ""
    if all(isinstance(value, str) and _PLAIN.fullmatch(value) for value in values.values()):
        return "?" + "&".join([f"{key}={value}" for key, value in values.items()])
    return f"?{urlencode(values, doseq=True)}"

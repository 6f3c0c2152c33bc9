"""Requests to the API server and its answers, whichever way both go."""

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

Query = Mapping[str, str | int | bool | None]


@dataclass(slots=True)
class ApiServerAnswer:
    """An answer's status and body."""

    status: int
    body: bytes
    asked_pause: str | None
    """What `Retry-After` said."""

    @property
    def retry_after(self) -> float | None:
        """The pause that the server asks for, in seconds."""
        text = self.asked_pause
        return float(text) if text is not None and text.isdecimal() and len(text) <= _LONGEST_WAIT_DIGITS else None


@dataclass(slots=True)
class ApiRequest:
    """A request, whatever the attempt. `idle_s` is set for a stream, `head_s` for one that begins late (seconds)."""

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

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def target(self) -> str:
        """Path and query; the path as it was given."""
        return self.path if self.query is None else self.path + encoded(self.query)

    def was_not_answered(self) -> None:
        """An attempt was sent, and may be carried out later."""
        if self.unanswered is not None:
            self.unanswered()

    def headers(self) -> dict[str, str]:
        """What the headers say of this request alone."""
        said = {"Accept": f"{self.accept}, */*"}
        if self.body is not None:
            said["Content-Type"] = self.content_type
        return said


def headers_of_all(token: str | None) -> dict[str, str]:
    """What the headers of every request say; `token` with its scheme."""
    # Uncompressed: packing a list costs both sides more time than sending it within a data centre.
    said = {"Accept-Encoding": "identity", "User-Agent": _USER_AGENT}
    if token is not None:
        said["Authorization"] = token
    return said


def body_of(thing: Mapping[str, Any]) -> bytes:
    """JSON."""
    try:
        return msgspec.json.encode(thing)
    except UnicodeEncodeError:  # half a character, which JSON can only tell escaped
        return json.dumps(thing).encode()


def encoded(query: Query) -> str:
    """A query with its question mark; empty for none. Values that are None are left out."""
    said = {
        key: value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in query.items()
        if value is not None
    }
    if not said:
        return ""
    if all(_PLAIN.fullmatch(value) for value in said.values()):
        return "?" + "&".join([f"{key}={value}" for key, value in said.items()])
    return f"?{urlencode(said)}"

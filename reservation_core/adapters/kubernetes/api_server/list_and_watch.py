"""Consistent lists of objects, and the lines of a watch."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from reservation_core.adapters.kubernetes.api_server.errors import ExpiredError
from reservation_core.adapters.kubernetes.api_server.plain_json import LIST, as_list, as_mapping
from reservation_core.adapters.kubernetes.api_server.requests import Query
from reservation_core.adapters.kubernetes.api_server.retries import Transport

PAGE = 500
"""Objects in one answer."""

IDLE_S = 90.0
"""Longest silence of a healthy watch; bookmarks come every minute."""


T = TypeVar("T")


async def list_all(
    transport: Transport,
    path: str,
    read: Callable[[Mapping[str, Any]], T | None],
    query: Query | None = None,
    *,
    paged: bool = True,
) -> tuple[list[T], str]:
    """Read a consistent list: `read` of each object (None is left out), and the list's resourceVersion.

    When the list expires between two pages (410), it is requested once more, unpaged. Unpaged lists are often served
    from the API server's cache, paged ones from etcd, so short lists should not be paged.
    """
    things: list[T] = []
    token: str | None = None
    whole = not paged
    while True:
        page_query = {**(query or {}), "limit": None if whole else PAGE, "continue": token}
        try:
            page = await transport.request("GET", path, query=page_query, decoder=LIST)
        except ExpiredError:
            if token is None:
                raise
            things, token, whole = [], None, True
            continue
        things += [thing for thing in map(read, map(as_mapping, as_list(page.get("items")))) if thing is not None]
        metadata = as_mapping(page.get("metadata"))
        token = metadata.get("continue") or None
        if token is None:
            return things, str(metadata.get("resourceVersion") or "")


class LineSplitter:
    """Splits a stream of chunks into complete lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The non-empty lines that this chunk completes, without their line ends."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [line for line in lines if line.strip()]

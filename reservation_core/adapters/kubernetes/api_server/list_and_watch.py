"""Following a list of objects: list it once, then watch what changes, from where the list was.

Nothing is told as gone but by a DELETED event or by its absence from a later consistent list. Whatever breaks the watch
(its end, a silent network, a server that has forgotten our place) is made up for by going on from the last version, or
by one new list: that yields only what differs. Of each object no more is kept than its status.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from reservation_core.adapters.kubernetes.api_server.errors import ExpiredError
from reservation_core.adapters.kubernetes.api_server.plain_json import as_list, as_mapping
from reservation_core.adapters.kubernetes.api_server.requests import Query
from reservation_core.adapters.kubernetes.api_server.retries import Transport

PAGE = 500
"""Objects in one answer."""

IDLE_S = 90.0
"""How long a healthy watch may be silent: bookmarks come every minute."""


T = TypeVar("T")


async def list_all(
    transport: Transport,
    path: str,
    read: Callable[[Mapping[str, Any]], T | None],
    query: Query | None = None,
    *,
    paged: bool = True,
) -> tuple[list[T], str]:
    """What `read` makes of each object of a consistent list (None is left out), and the list's resourceVersion.

    Asked for in pages, none of which is kept. A server that forgets the list between two pages (410) is asked once
    more, for all of it at once. Without pages many API servers answer from memory, with them from their database: for
    a list that is known to be short they are a waste.
    """
    found: list[T] = []
    token: str | None = None
    whole = not paged
    while True:
        asked = {**(query or {}), "limit": None if whole else PAGE, "continue": token}
        try:
            page = await transport.request("GET", path, query=asked)
        except ExpiredError:
            if token is None:
                raise
            found, token, whole = [], None, True
            continue
        found += [thing for thing in map(read, map(as_mapping, as_list(page.get("items")))) if thing is not None]
        metadata = as_mapping(page.get("metadata"))
        token = metadata.get("continue") or None
        if token is None:
            return found, str(metadata.get("resourceVersion") or "")


class LineSplitter:
    """The lines of a stream of chunks, without their ends; one that the stream's end cuts off is never given."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, empty ones left out."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [line for line in lines if line.strip()]

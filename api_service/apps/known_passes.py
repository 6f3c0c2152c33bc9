"""Passes that were looked up in the last seconds: a page of an app asks for many things at once."""

import asyncio
from collections.abc import Awaitable, Callable

from reservation_core.ports.sessions.app_passes import AppAddress, AppPass
from reservation_core.runtime.sessions.connections import REFRESH_S, Connection

KNOWN_S = REFRESH_S
_MOST_KNOWN = 4096


class KnownPass:
    """One pass. `connection`: the one that it was last used for, with whose end it is looked up again."""

    def __init__(self, found: "asyncio.Future[AppPass | None]", until: float) -> None:
        self.connection: Connection | None = None
        self._found = found
        self._until = until

    def is_good(self, now: float) -> bool:
        return now < self._until and (self.connection is None or not self.connection.over.is_set())

    async def result(self) -> AppPass | None:
        """The pass, if it is valid. Raises DatabaseUnavailableError."""
        return await asyncio.shield(self._found)


class KnownPasses:
    """Looks each pass up once in some seconds. `find` looks one up, by its digest and app."""

    def __init__(self, find: Callable[[bytes, AppAddress], Awaitable[AppPass | None]]) -> None:
        self._find = find
        self._known: dict[tuple[bytes, AppAddress], KnownPass] = {}

    def get(self, digest: bytes, app: AppAddress) -> KnownPass:
        """A pass that is being looked up, or was just now. Failures and refusals are not remembered."""
        key, now = (digest, app), asyncio.get_running_loop().time()
        known = self._known.get(key)
        if known is not None and known.is_good(now):
            return known
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        finding = asyncio.ensure_future(self._find(digest, app))
        known = self._known[key] = KnownPass(finding, now + KNOWN_S)

        def forget_failure(found: "asyncio.Future[AppPass | None]") -> None:
            if (found.cancelled() or found.exception() or found.result() is None) and self._known.get(key) is known:
                del self._known[key]

        finding.add_done_callback(forget_failure)
        return known

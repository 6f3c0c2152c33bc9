"""The uses of apps: one connection for a user, a job and a token, however many requests there are."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from api_service.problems import ProblemError
from reservation_core.domain.sessions.ways_in import Way
from reservation_core.runtime.sessions.connections import Connection, Connections
from reservation_core.usecases.sessions.enter import Visitor

IDLE_S = 30.0
"""How long a connection is kept after its last request: pages ask again and again."""

_MOST_AT_ONCE = 256


class UseKey(NamedTuple):
    """The user, the job, and `credential`: the id of the token."""

    user_id: int
    job_id: str
    credential: str | None


class _Use:
    """A connection while it is used."""

    def __init__(self) -> None:
        self.opened: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        self.requests = 0
        self.changed = asyncio.Event()


class AppsInUse:
    """All uses of apps by this process."""

    def __init__(self, connections: Connections, idle_s: float = IDLE_S) -> None:
        self._connections = connections
        self._idle_s = idle_s
        self._uses: dict[UseKey, _Use] = {}
        self._holding: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def use(self, visitor: Visitor, job_id: str) -> AsyncIterator[Connection]:
        """Be one request of a visitor to an app of a job.

        Raises NotFoundError, JobNotRunningError, TooManyConnectionsError, ProblemError (503) and
        DatabaseUnavailableError.
        """
        key = UseKey(visitor.user_id, job_id, visitor.credential)
        use = self._uses.get(key)
        if use is None:
            use = self._uses[key] = _Use()
            task = asyncio.create_task(self._hold(key, use, visitor))
            self._holding.add(task)
            task.add_done_callback(self._holding.discard)
        if use.requests >= _MOST_AT_ONCE:
            detail = (
                f"{_MOST_AT_ONCE} requests to apps of {job_id} are open, the most at one time. Try again in a moment."
            )
            raise ProblemError(503, "too_many_requests_to_apps", detail, headers={"Retry-After": "5"})
        use.requests += 1
        try:
            yield await asyncio.shield(use.opened)
        finally:
            use.requests -= 1
            use.changed.set()

    async def close(self) -> None:
        """End all connections."""
        for task in self._holding:
            task.cancel()
        await asyncio.gather(*self._holding, return_exceptions=True)

    async def _hold(self, key: UseKey, use: _Use, visitor: Visitor) -> None:
        """Keep a connection until nobody has used it for a while, or it must end."""
        try:
            async with self._connections.enter(visitor, key.job_id, 0, Way.APP) as connection:
                use.opened.set_result(connection)
                over = asyncio.create_task(connection.over.wait())
                try:
                    while not over.done() and not await self._is_idle(use, over):
                        pass
                finally:
                    over.cancel()
                    # Later requests are checked anew; those that go on hear of its end.
                    self._uses.pop(key, None)
        except Exception as error:  # whoever waits for the connection gets it
            if use.opened.done():
                raise
            use.opened.set_exception(error)
            use.opened.exception()  # there may be nobody
        finally:
            if self._uses.get(key) is use:  # and not a later one
                del self._uses[key]
            if not use.opened.done():
                use.opened.cancel()

    async def _is_idle(self, use: _Use, over: "asyncio.Task[bool]") -> bool:
        """Wait for a change; whether there was none for so long, and no request is open."""
        use.changed.clear()
        changed = asyncio.create_task(use.changed.wait())
        try:
            done, _ = await asyncio.wait({changed, over}, timeout=self._idle_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        return not done and use.requests == 0

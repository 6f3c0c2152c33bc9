"""One read for everybody who asks at the same time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedReading(Generic[T]):
    """Runs `read` once for all concurrent callers; it runs at most once at a time."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._running: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        """The answer of a read that begins after this call. Raises what `read` raises."""
        if self._next is None:
            # A running read may have begun before a change that the caller knows of: the next one includes it.
            self._next = asyncio.create_task(self._after(self._running))
            self._next.add_done_callback(_retrieved)
        return await asyncio.shield(self._next)

    async def close(self) -> None:
        """Cancel running reads."""
        tasks = [task for task in (self._running, self._next) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _after(self, running: "asyncio.Task[T] | None") -> T:
        if running is not None:
            await asyncio.wait((running,))
        self._running, self._next = self._next, None
        return await self._read()


def _retrieved(task: "asyncio.Task[T]") -> None:
    """Take the error of a read whose caller has gone."""
    if not task.cancelled():
        task.exception()

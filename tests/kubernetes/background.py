"""A thread with an event loop of its own, so that sync and async tests alike can use what runs in it."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from tests.network.stream_server import some_rounds

T = TypeVar("T")
_PATIENCE_S = 120.0


class Background:
    """Runs `_live` from `start` to `stop`. `_live` calls `_is_up` once it does its work."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._up: Future[None] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._problem: BaseException | None = None

    def start(self) -> Self:
        """Returns once it works. Raises what kept it from that."""
        self._thread.start()
        self._up.result(_PATIENCE_S)
        return self

    def stop(self) -> None:
        """End it. Raises what had ended it before, so that no test passes on a dead cluster."""
        if self._loop is not None and self._task is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(_PATIENCE_S)
        if self._problem is not None:
            raise RuntimeError(f"{self._name} had ended before the test did") from self._problem

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, at: TracebackType | None
    ) -> None:
        self.stop()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine over there and wait for it. Short things only: it blocks the calling thread."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_S)

    async def _live(self) -> None:
        raise NotImplementedError

    def _is_up(self) -> None:
        if not self._up.done():
            self._up.set_result(None)

    def _run(self) -> None:
        async def main() -> None:
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
            try:
                await self._live()
            finally:
                await _end_connections(self._loop)

        try:
            asyncio.run(main())
        except asyncio.CancelledError:
            return
        except BaseException as problem:  # noqa: BLE001 -- told to the thread that waits, or by `stop`
            if self._up.done():
                self._problem = problem
            else:
                self._up.set_exception(problem)


async def _end_connections(loop: asyncio.AbstractEventLoop) -> None:
    """Those that are open still, also those that were let in just before the end: their owner never learnt of them."""
    await some_rounds()
    for transport in [*loop._transports.values()]:  # type: ignore[attr-defined]  # asyncio tells nobody else
        with suppress(AttributeError):  # of one that had closed with data left to send: it has no loop any more
            transport.abort()
    await some_rounds()

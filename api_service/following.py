"""Streams that follow a job: how they are woken, and how they end.

The whole process has one subscription to the events channel; every open stream waits on it. A wake-up says only that
something happened to some job: each stream then reads what is new for its own job.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, aclosing
from datetime import timedelta

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api_service.problems import ProblemError
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.ports.wakeups import Channel, Wakeups

SWEEP_S = 1.0
RECHECK_S = 15.0


class SharedWakeups:
    """One listener for all streams of the process."""

    def __init__(self, wakeups: Wakeups) -> None:
        self._wakeups = wakeups
        self._next = asyncio.Event()
        self.stopping = asyncio.Event()

    async def run(self) -> None:
        """Pass wake-ups on until cancelled. Without it, streams rely on their sweep."""
        async with self._wakeups.subscribe(Channel.EVENTS) as subscription:
            while True:
                if await subscription.wait(timedelta(seconds=30)):
                    self._ring()

    def stop(self) -> None:
        """End all streams, because the process is about to end."""
        self.stopping.set()
        self._ring()

    def ticket(self) -> asyncio.Event:
        """The next wake-up. Take it before reading, so that no event between reading and waiting is missed."""
        return self._next

    async def wait(self, ticket: asyncio.Event, timeout_s: float = SWEEP_S) -> None:
        """Wait for the wake-up of a ticket, or until the time runs out."""
        try:
            async with asyncio.timeout(timeout_s):
                await ticket.wait()
        except TimeoutError:
            return

    def _ring(self) -> None:
        rung, self._next = self._next, asyncio.Event()
        rung.set()


class LiveStream(Response):
    """A response that goes on until its chunks end, the client leaves, the caller's token ends or the process stops.

    Unless its chunks came to their end, the response stays visibly incomplete (the connection is closed in its middle).
    The response holds `place` meanwhile, see `OpenStreams`.
    """

    def __init__(
        self,
        chunks: AsyncGenerator[bytes],
        *,
        media_type: str,
        place: AbstractContextManager[None],
        wakeups: SharedWakeups,
        recheck: Callable[[], Awaitable[object]],
    ) -> None:
        super().__init__(media_type=media_type, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._chunks = chunks
        self._place = place
        self._wakeups = wakeups
        self._recheck = recheck

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        with self._place:
            await self._serve(receive, send)

    async def _serve(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        pump = asyncio.create_task(self._pump(send))
        gone = asyncio.create_task(disconnected(receive))
        others = {
            asyncio.create_task(self._wakeups.stopping.wait()),
            asyncio.create_task(self._until_not_allowed()),
        }
        try:
            await asyncio.wait({pump, gone, *others}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            finished = pump.done()
            for task in (pump, gone, *others):
                task.cancel()
            await asyncio.gather(pump, gone, *others, return_exceptions=True)
            await self._chunks.aclose()
        if finished and not pump.cancelled() and (error := pump.exception()) is not None:
            raise error
        if finished:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        # Otherwise the end is missing on purpose: a stream cut short must not look like a whole one.

    async def _pump(self, send: Send) -> None:
        async with aclosing(self._chunks) as chunks:
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def _until_not_allowed(self) -> None:
        while True:
            await asyncio.sleep(RECHECK_S)
            try:
                await self._recheck()
            except ProblemError:
                return
            except DatabaseUnavailableError:
                continue


async def disconnected(receive: Receive) -> None:
    """Return when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass

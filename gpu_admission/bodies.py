"""Taking in the bodies of requests: bounded each, bounded together, and not for ever.

Large ones share a room and wait for their turn in it. Small ones, such as nodes by name, need none: nobody who fills
the room keeps them out, and there are only so many connections.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import ClientDisconnect, Request

_TOLD_LATE = "the request took longer than {seconds:g} s to come, its turn included; send it again"


SMALL_BYTES = 256 * 1024


class RefusedBodyError(Exception):
    """A body that is not taken; `status` and the text say why. The connection is to be closed."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class Bodies:
    """The bodies that are held at a time. `largest` of one and `together` of all large ones are in bytes."""

    def __init__(self, largest: int, together: int, patience_s: float) -> None:
        self._largest = largest
        self._left = together
        self._patience_s = patience_s
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def of(self, request: Request) -> AsyncIterator[bytes]:
        """The request's body; its bytes count until the block's end. Raises RefusedBodyError."""
        size = self._room_for(request)
        try:
            async with asyncio.timeout(self._patience_s) as patience:
                await self._take(size)
                try:
                    body = await self._read(request)
                except BaseException:
                    self._give_back(size)
                    raise
        except TimeoutError:
            if not patience.expired():
                raise
            raise RefusedBodyError(408, _TOLD_LATE.format(seconds=self._patience_s)) from None
        except ClientDisconnect:
            raise RefusedBodyError(400, "the sender went away") from None
        try:
            yield body
        finally:
            self._give_back(size)

    def _room_for(self, request: Request) -> int:
        headers = request.headers
        if headers.get("content-type", "").split(";", 1)[0].strip().lower() != "application/json":
            raise RefusedBodyError(415, "send JSON, with the header Content-Type: application/json")
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise RefusedBodyError(415, "compressed bodies are not taken; send plain JSON")
        announced = headers.get("content-length")
        if announced is None or not announced.isdecimal():
            return self._largest  # it may become as large
        if len(announced) > 19 or int(announced) > self._largest:
            raise self._too_large()
        return int(announced) if int(announced) > SMALL_BYTES else 0

    async def _read(self, request: Request) -> bytes:
        chunks: list[bytes] = []
        size = 0
        async for chunk in request.stream():
            size += len(chunk)
            if size > self._largest:
                raise self._too_large()
            chunks.append(chunk)
        return b"".join(chunks)

    def _too_large(self) -> RefusedBodyError:
        return RefusedBodyError(
            413,
            f"the body has more than {self._largest} bytes; set nodeCacheCapable: true, so that nodes are sent by name,"
            " or raise GPU_DEV_ADMISSION__MAX_BODY_BYTES",
        )

    async def _take(self, size: int) -> None:
        if not self._waiting and size <= self._left:
            self._left -= size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (size, turn)
        self._waiting.append(entry)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._give_back(size)  # its turn came as it gave up
            elif entry in self._waiting:
                self._waiting.remove(entry)
                self._next()
            raise

    def _give_back(self, size: int) -> None:
        self._left += size
        self._next()

    def _next(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._left:
            size, turn = self._waiting.popleft()
            if not turn.done():
                self._left -= size
                turn.set_result(None)

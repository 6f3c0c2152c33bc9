"""Bodies of requests: bounded one by one, together, and in time.

Large ones share a room and wait for their turn in it. Small ones, such as nodes by name, need none: a full
room does not keep them out, and connections are bounded.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import Receive, Scope

_TOLD_LATE = "the request took longer than {seconds:g} s to come, its turn included; send it again"
_JSON = b"application/json"

SMALL_BYTES = 256 * 1024


class RefusedQuestionBodyError(Exception):
    """A refused body; `status` and the text say why. The connection is to be closed."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class QuestionBodies:
    """The bodies that are held now. `largest` of one and `together` of all large ones are in bytes."""

    def __init__(self, largest: int, together: int, patience_s: float) -> None:
        self._largest = largest
        self._left = together
        self._patience_s = patience_s
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def of(self, scope: Scope, receive: Receive) -> AsyncIterator[bytes]:
        """The body of an ASGI request; its bytes count until the block's end. Raises RefusedQuestionBodyError."""
        size = self._room_for(scope)
        try:
            async with asyncio.timeout(self._patience_s) as patience:
                await self._take(size)
                try:
                    body = await self._read(receive)
                except BaseException:
                    self._give_back(size)
                    raise
        except TimeoutError:
            if not patience.expired():
                raise
            raise RefusedQuestionBodyError(408, _TOLD_LATE.format(seconds=self._patience_s)) from None
        try:
            yield body
        finally:
            self._give_back(size)

    def _room_for(self, scope: Scope) -> int:
        kind, encoding, announced = b"", b"identity", b""
        for name, value in scope["headers"]:
            if name == b"content-type":
                kind = value
            elif name == b"content-encoding":
                encoding = value
            elif name == b"content-length":
                announced = value
        if kind != _JSON and kind.split(b";", 1)[0].strip().lower() != _JSON:
            raise RefusedQuestionBodyError(415, "send JSON, with the header Content-Type: application/json")
        if encoding.lower() != b"identity":
            raise RefusedQuestionBodyError(415, "compressed bodies are not taken; send plain JSON")
        if not announced.isdigit():
            return self._largest  # it may become as large
        if len(announced) > 19 or int(announced) > self._largest:
            raise self._too_large()
        return int(announced) if int(announced) > SMALL_BYTES else 0

    async def _read(self, receive: Receive) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RefusedQuestionBodyError(400, "the sender went away")
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > self._largest:
                raise self._too_large()
            chunks.append(chunk)
            if not message.get("more_body", False):
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _too_large(self) -> RefusedQuestionBodyError:
        return RefusedQuestionBodyError(
            413,
            f"the body has more than {self._largest} bytes; set nodeCacheCapable: true, so that nodes are sent by name,"
            " or raise GPU_DEV_ADMISSION__MAX_BODY_BYTES",
        )

    async def _take(self, size: int) -> None:
        if not size or (not self._waiting and size <= self._left):
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
        if size:
            self._left += size
            self._next()

    def _next(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._left:
            size, turn = self._waiting.popleft()
            if not turn.done():
                self._left -= size
                turn.set_result(None)

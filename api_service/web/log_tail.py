"""A log on a page: its last lines, then each as it comes.

What has been printed before somebody looks may be long: only its end is kept while it is read, and sent at once. From
then on lines are sent as they come, a few times a second at most.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator

from api_service.web.ansi_text import LONGEST_LINE, TerminalLines

KEPT_LINES = 2000
_PAUSE_S = 0.25
_PARTIAL = 4 * LONGEST_LINE


class _Lines:
    """Bytes as they come into whole lines, the last of which stand by."""

    def __init__(self, kept: int) -> None:
        self.ready: deque[str] = deque(maxlen=kept)
        self.left_out = 0
        self._rest = b""

    def take(self, chunk: bytes) -> None:
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        for line in whole:
            self._add(line)
        if len(self._rest) > _PARTIAL:
            self._add(self._rest)
            self._rest = b""

    def end(self) -> None:
        if self._rest:
            self._add(self._rest)
            self._rest = b""

    def _add(self, line: bytes) -> None:
        if len(self.ready) == self.ready.maxlen:
            self.left_out += 1
        self.ready.append(line.decode("utf-8", "replace").removesuffix("\r"))


async def tail_of(chunks: AsyncIterator[bytes], *, lines: int, at_most: int) -> tuple[list[str], int]:
    """The last lines of a log as HTML, and how many came before them; after `at_most` bytes no more is read."""
    read = 0
    found = _Lines(lines)
    async for chunk in chunks:
        found.take(chunk)
        read += len(chunk)
        if read > at_most:
            break
    found.end()
    terminal = TerminalLines()
    return [terminal.html(line) for line in found.ready], found.left_out


async def followed(chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Server-sent events: `lines` with `{"lines": [HTML, …], "left_out": n, "anew": true}`, and `end` when all is said.

    `left_out` lines stood before these and are not sent; `anew`: these are the first.
    """
    loop = asyncio.get_running_loop()
    lines, terminal, anew = _Lines(KEPT_LINES), TerminalLines(), True
    flush_at = loop.time() + _PAUSE_S
    coming = asyncio.create_task(_next(chunks))
    try:
        while True:
            timeout = max(0.0, flush_at - loop.time()) if lines.ready or anew else None
            done, _ = await asyncio.wait({coming}, timeout=timeout)
            if done:
                chunk = coming.result()
                if chunk is None:
                    break
                lines.take(chunk)
                coming = asyncio.create_task(_next(chunks))
            if (lines.ready or anew) and loop.time() >= flush_at:
                yield _event(lines, terminal, anew=anew)
                anew, flush_at = False, loop.time() + _PAUSE_S
        lines.end()
        yield _event(lines, terminal, anew=anew)
        yield b"event: end\ndata: {}\n\n"
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
        await chunks.aclose()


async def _next(chunks: AsyncGenerator[bytes]) -> bytes | None:
    return await anext(chunks, None)


def _event(lines: _Lines, terminal: TerminalLines, *, anew: bool) -> bytes:
    told = [terminal.html(line) for line in lines.ready]
    data = json.dumps({"lines": told, "left_out": lines.left_out, "anew": anew})
    lines.ready.clear()
    lines.left_out = 0
    return f"event: lines\ndata: {data}\n\n".encode()

"""A log on a page: its last lines, then new lines as they appear.

The log so far may be long: only its end is kept while it is read, and sent at once. Later lines are sent a few times a
second at most.
"""

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from dataclasses import dataclass

from api_service.web.jobs.ansi_text import LONGEST_LINE, TerminalLines

KEPT_LINES = 2000
KEPT_LETTERS = 2**21
"""Fewer long lines are kept: the memory of one reader is bounded."""
_PAUSE_S = 0.25
_PARTIAL = 4 * LONGEST_LINE
_TURN_S = 0.005


class _Lines:
    """Splits bytes into lines, and keeps the last ones."""

    def __init__(self, kept: int) -> None:
        self._left_out = 0
        self._ready: deque[str] = deque()
        self._kept = kept
        self._letters = 0
        self._rest = b""

    @property
    def any_ready(self) -> bool:
        return bool(self._ready)

    def all_ready(self) -> tuple[list[str], int]:
        """The lines since the last call, and the number left out before them."""
        found = list(self._ready), self._left_out
        self._ready.clear()
        self._letters = self._left_out = 0
        return found

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
        # One letter more than is shown tells that the line was cut.
        text = line.decode("utf-8", "replace").removesuffix("\r")[: LONGEST_LINE + 1]
        self._ready.append(text)
        self._letters += len(text)
        while len(self._ready) > self._kept or self._letters > KEPT_LETTERS:
            self._letters -= len(self._ready.popleft())
            self._left_out += 1


@dataclass(frozen=True, slots=True)
class Tail:
    """The last lines of a log as HTML, after `left_out` others. `goes_on`: reading stopped before the end."""

    lines: Sequence[str] = ()
    left_out: int = 0
    goes_on: bool = False


async def read_tail(chunks: AsyncIterator[bytes], *, lines: int, at_most: int) -> Tail:
    """The end of a log; reading stops after `at_most` bytes."""
    read, goes_on = 0, False
    found = _Lines(lines)
    async for chunk in chunks:
        found.take(chunk)
        read += len(chunk)
        if read > at_most:
            goes_on = True
            break
    found.end()
    ready, left_out = found.all_ready()
    return Tail(await _drawn(ready, TerminalLines()), left_out, goes_on)


async def stream_lines(chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Server-sent events: `lines` with `{"lines": [HTML, …], "left_out": n, "anew": true}`, and `end` at the end.

    `left_out` lines before these are not sent; `anew`: these are the first.
    """
    loop = asyncio.get_running_loop()
    lines, terminal, anew = _Lines(KEPT_LINES), TerminalLines(), True
    flush_at = loop.time() + _PAUSE_S
    coming = asyncio.create_task(_next(chunks))
    try:
        while True:
            timeout = max(0.0, flush_at - loop.time()) if lines.any_ready or anew else None
            done, _ = await asyncio.wait({coming}, timeout=timeout)
            if done:
                chunk = coming.result()
                if chunk is None:
                    break
                lines.take(chunk)
                coming = asyncio.create_task(_next(chunks))
            if (lines.any_ready or anew) and loop.time() >= flush_at:
                yield await _event(lines, terminal, anew=anew)
                anew, flush_at = False, loop.time() + _PAUSE_S
        lines.end()
        yield await _event(lines, terminal, anew=anew)
        yield b"event: end\ndata: {}\n\n"
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
        await chunks.aclose()


async def _next(chunks: AsyncGenerator[bytes]) -> bytes | None:
    return await anext(chunks, None)


async def _drawn(lines: Iterable[str], terminal: TerminalLines) -> list[str]:
    """Lines as HTML. Thousands of coloured lines take seconds, so other requests are served in between."""
    drawn: list[str] = []
    pause_at = time.monotonic() + _TURN_S
    for line in lines:
        drawn.append(terminal.html(line))
        if time.monotonic() >= pause_at:
            await asyncio.sleep(0)
            pause_at = time.monotonic() + _TURN_S
    return drawn


async def _event(lines: _Lines, terminal: TerminalLines, *, anew: bool) -> bytes:
    ready, left_out = lines.all_ready()
    data = json.dumps({"lines": await _drawn(ready, terminal), "left_out": left_out, "anew": anew})
    return f"event: lines\ndata: {data}\n\n".encode()

"""A log on a page: its last lines, then new lines as they appear.

The log so far may be long: only its end is kept while it is read, and sent at once. Later lines are sent a few times a
second at most. Lines are numbered from the log's first one, as far as it is kept whole.
"""

import asyncio
import json
import re
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass

from api_service.web.jobs.ansi_text import LONGEST_LINE, TerminalLines, last_state, plain_html
from reservation_core.ports.cluster import OmittedOutput

KEPT_LINES = 2000
KEPT_LETTERS = 2**21
"""Fewer long lines are kept: the memory of one reader is bounded."""
MOST_HTML = 2**23
"""So much is drawn with colours, and then without: a few letters of a log can ask for a hundred of HTML."""
_PAUSE_S = 0.25
_CATCH_UP_S = 2.0
"""So long the first lines wait for more that was printed before: a reader's place may be among them."""
_PARTIAL = 4 * LONGEST_LINE
_TURN_S = 0.005


# A time or a dash before each line, after the rank of a job on several nodes; job_log.py writes them.
_TIME = re.compile(rb"(\[\d{1,6}\] )?(-|\d{4}-[\d:.T-]{18}Z) ")
WriteTime = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class ReadyLines:
    """Lines, the number of the first, how many of them have a number, and the time of each, if known.

    `dropped`: lines between these and those before were not kept.
    """

    texts: Sequence[str]
    first: int
    numbered: int
    times: Sequence[str]
    dropped: bool


class LogLines:
    """Splits bytes into lines, and keeps the last `kept` ones. A line that is too long loses its end.

    `write_time`: lines begin with their times, and this writes them for the reader.
    """

    def __init__(self, kept: int, *, numbered: bool = True, write_time: WriteTime | None = None) -> None:
        self._kept = kept
        self._write_time = write_time
        self._ready: deque[tuple[str, str]] = deque()
        self._letters = 0
        self._seen = 0
        self._given = 0
        self._numbered: int | None = None if numbered else 0
        self._rest = b""
        self._is_partial_new = False

    @property
    def any_ready(self) -> bool:
        return bool(self._ready) or self._is_partial_new

    @property
    def seen(self) -> int:
        """The number of lines so far."""
        return self._seen

    @property
    def partial(self) -> str:
        """The line that has begun and not ended."""
        return _text(self._timed(self._rest)[0])

    def all_ready(self) -> ReadyLines:
        """The lines since the last call."""
        found = list(self._ready)
        self._ready.clear()
        self._letters, self._is_partial_new = 0, False
        first = self._seen - len(found) + 1
        numbered = len(found) if self._numbered is None else max(0, min(len(found), self._numbered - first + 1))
        dropped, self._given = first > self._given + 1, self._seen
        return ReadyLines([text for text, _ in found], first, numbered, [at for _, at in found], dropped)

    def take(self, chunk: bytes) -> None:
        if isinstance(chunk, OmittedOutput) and self._numbered is None:
            self._numbered = self._seen
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        for line in whole:
            self._add(line)
        if len(self._rest) > LONGEST_LINE:
            line, time_before = self._timed(self._rest)
            self._rest = time_before + last_state(line)[:_PARTIAL]
        self._is_partial_new = bool(self._rest) or bool(whole)

    def end(self) -> None:
        if self._rest:
            self._add(self._rest)
            self._rest = b""

    def _add(self, line: bytes) -> None:
        printed, time_before = self._timed(line)
        text = _text(printed)
        known = time_before.split()[-1:] if self._write_time is not None else []
        at = self._write_time(known[0].decode()) if self._write_time is not None and known not in ([], [b"-"]) else ""
        self._seen += 1
        self._ready.append((text, at))
        self._letters += len(text)
        while len(self._ready) > self._kept or self._letters > KEPT_LETTERS:
            self._letters -= len(self._ready.popleft()[0])

    def _timed(self, line: bytes) -> tuple[bytes, bytes]:
        """A line without its time, and what stands before it: rank and time."""
        found = None if self._write_time is None else _TIME.match(line)
        if found is None:
            return line, b""
        return (found[1] or b"") + line[found.end() :], found[0]


def _text(line: bytes) -> str:
    """The text of a line; one letter more than is shown tells that it was cut."""
    shown = last_state(line) if len(line) > LONGEST_LINE else line
    return shown.decode("utf-8", "replace").removesuffix("\r")[: LONGEST_LINE + 1]


@dataclass(frozen=True, slots=True)
class Tail:
    """The last lines of a log as HTML; `goes_on`: reading stopped before the end.

    `first` is the number of the first line; `numbered` of the lines have a number, the others follow omitted output.
    """

    lines: Sequence[str] = ()
    first: int = 1
    numbered: int = 0
    goes_on: bool = False
    times: Sequence[str] = ()

    @property
    def left_out(self) -> int:
        """The number of lines before these."""
        return self.first - 1


async def read_tail(
    chunks: AsyncIterator[bytes],
    *,
    lines: int,
    at_most: int,
    numbered: bool = True,
    write_time: WriteTime | None = None,
) -> Tail:
    """The end of a log; reading stops after `at_most` bytes."""
    read, goes_on = 0, False
    found = LogLines(lines, numbered=numbered, write_time=write_time)
    async for chunk in chunks:
        found.take(chunk)
        read += len(chunk)
        if read > at_most:
            goes_on = True
            break
    found.end()
    ready = found.all_ready()
    return Tail(await draw(ready.texts, TerminalLines()), ready.first, ready.numbered, goes_on, ready.times)


async def stream_lines(
    chunks: AsyncGenerator[bytes], *, numbered: bool = True, write_time: WriteTime | None = None
) -> AsyncGenerator[bytes]:
    """Server-sent events: `lines` with what is new, and `end` at the end.

    `lines` (HTML) begin with number `first`, and `numbered` of them have a number. `anew`: they replace all others;
    lines before them are not sent. `rest` is the beginning of a further line.
    """
    loop = asyncio.get_running_loop()
    lines = LogLines(KEPT_LINES, numbered=numbered, write_time=write_time)
    terminal, anew = TerminalLines(), True
    caught_up_at = loop.time() + _CATCH_UP_S
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
                if anew:
                    flush_at = min(loop.time() + _PAUSE_S, caught_up_at)
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


async def draw(lines: Iterable[str], terminal: TerminalLines) -> list[str]:
    """Lines as HTML. Thousands of coloured lines take seconds, so other requests are served in between."""
    drawn: list[str] = []
    letters = 0
    pause_at = time.monotonic() + _TURN_S
    for line in lines:
        html = terminal.html(line) if letters < MOST_HTML else plain_html(line)
        letters += len(html)
        drawn.append(html)
        if time.monotonic() >= pause_at:
            await asyncio.sleep(0)
            pause_at = time.monotonic() + _TURN_S
    return drawn


async def _event(lines: LogLines, terminal: TerminalLines, *, anew: bool) -> bytes:
    ready = lines.all_ready()
    drawn = await draw(ready.texts, terminal)
    rest = terminal.unfinished(lines.partial)
    fields = {"lines": drawn, "first": ready.first, "numbered": ready.numbered, "rest": rest}
    fields["anew"] = anew or ready.dropped
    fields["times"] = ready.times
    return f"event: lines\ndata: {json.dumps(fields)}\n\n".encode()

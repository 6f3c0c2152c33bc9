"""The part of a log around a line, and the lines that hold a text. The log is read from its beginning, and not kept.

Both end where output was not kept: the lines after that have no number.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from api_service.web.jobs.ansi_text import TerminalLines, plain_texts
from api_service.web.jobs.log_tail import KEPT_LETTERS, LogLines, Tail, WriteTime, draw
from reservation_core.ports.cluster import OmittedOutput

BEFORE = 200
AFTER = 300
MOST_FOUND = 5_000
_ALL = 2**62
_AT_ONCE = 2**14
"""So many bytes are searched before other requests are served: a few milliseconds, even of progress bars."""


@dataclass(frozen=True, slots=True)
class LogPart:
    """Lines around the wanted one. Without them, the log has `last` lines with numbers so far."""

    tail: Tail
    last: int


@dataclass(slots=True)
class FoundLines:
    """The numbers of the first lines that hold a text, how many lines hold it, and the last line looked at."""

    numbers: list[int] = field(default_factory=list)
    count: int = 0
    last: int = 0


async def read_part(chunks: AsyncIterator[bytes], line: int, write_time: WriteTime | None = None) -> LogPart:
    """The lines around number `line`, which is at least 1; fewer where they are long."""
    begin, end = max(1, line - BEFORE), line + AFTER
    lines = LogLines(_ALL, write_time=write_time)
    part: deque[tuple[str, str]] = deque()
    seen = letters = 0
    is_whole = False
    async for chunk in _before_omission(chunks):
        fresh = chunk
        if seen < begin - 1:
            missing = begin - 1 - seen
            count = chunk.count(b"\n")
            seen += min(count, missing)
            if count < missing:
                continue
            fresh = chunk.split(b"\n", missing)[missing]
        lines.take(fresh)
        ready = lines.all_ready()
        for text, at in zip(ready.texts, ready.times, strict=True):
            seen += 1
            part.append((text, at))
            letters += len(text)
            while letters > KEPT_LETTERS and seen - len(part) + 1 < line and len(part) > 1:
                letters -= len(part.popleft()[0])
            is_whole = seen >= end or (letters > KEPT_LETTERS and seen >= line)
            if is_whole:
                break
        if is_whole:
            break
    if not is_whole:
        lines.end()
        ready = lines.all_ready()
        part.extend(zip(ready.texts, ready.times, strict=True))
        seen += len(ready.texts)
    if seen < line:
        return LogPart(Tail(), seen)
    drawn = await draw((text for text, _ in part), TerminalLines())
    return LogPart(Tail(drawn, seen - len(part) + 1, len(part), times=[at for _, at in part]), seen)


async def find_lines(
    chunks: AsyncIterator[bytes], wanted: str, is_given_up: Callable[[], Awaitable[bool]] | None = None
) -> FoundLines:
    """The lines that show the text, in upper or lower case. Reading stops once the search is given up."""
    lowered = wanted.lower()
    found, lines = FoundLines(), LogLines(_ALL)
    async for chunk in _before_omission(chunks):
        for at in range(0, len(chunk), _AT_ONCE):
            lines.take(chunk[at : at + _AT_ONCE])
            _look(found, lines, lowered)
            await asyncio.sleep(0)
        if is_given_up is not None and await is_given_up():
            break
    lines.end()
    _look(found, lines, lowered)
    return found


def _look(found: FoundLines, lines: LogLines, lowered: str) -> None:
    ready = lines.all_ready()
    found.last += len(ready.texts)
    shown = plain_texts(ready.texts).lower()
    if lowered not in shown:  # as in nearly all of a long log
        return
    for number, text in enumerate(shown.split("\n"), ready.first):
        if lowered in text:
            found.count += 1
            if found.count <= MOST_FOUND:
                found.numbers.append(number)


async def _before_omission(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The log up to where output is left out. Other requests are served between chunks."""
    async for chunk in chunks:
        if isinstance(chunk, OmittedOutput):
            return
        yield chunk
        await asyncio.sleep(0)

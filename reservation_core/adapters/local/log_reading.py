"""Read logs while `bounded_log` writes them. Positions are bytes of the pod's whole output, kept or left out.

A log is `NAME.log`, its segments `NAME.log.d/START`, and `NAME.log.times`. All functions block, and may raise OSError.
"""

import contextlib
import os
import shutil
import sys
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from reservation_core.adapters.local.bounded_log import BUFFER
from reservation_core.adapters.local.output_times import RECORD, new_times_path, times_path
from reservation_core.ports.cluster import OmittedOutput

_RETRIES = 20


@dataclass(frozen=True, slots=True)
class _Piece:
    """A file of a log: the bytes that were printed before it, and its size."""

    path: Path
    start: int
    size: int

    @property
    def end(self) -> int:
        """The bytes that were printed up to its end."""
        return self.start + self.size


def read_from(log: Path, place: int, ends_line: bool) -> bytes:
    """Read at most 64 KiB after the first `place` bytes; OmittedOutput where they are not kept.

    `ends_line`: whether the previous chunk ended with a whole line.
    """
    for _ in range(_RETRIES):
        # Nearly all logs are short, so the head is read first, without listing segments.
        if chunk := _read(_Piece(log, 0, place + 1), place):
            return chunk
        pieces = _pieces(log)
        piece = next((piece for piece in pieces if place < piece.end), None)
        if piece is None:
            return b""
        if place < piece.start:
            return OmittedOutput(piece.start - place, begins_line=ends_line)
        if chunk := _read(piece, place):
            return chunk
        # The segment has just been removed.
    return b""


class LogTimes:
    """When the output of one log was printed; the records are read again only after they have changed."""

    def __init__(self, log: Path) -> None:
        self._path = Path(times_path(str(log)))
        self._state = (0, 0)
        self._positions = array("Q")
        self._times_ms = array("Q")

    def between(self, begin: int, end: int) -> list[tuple[int, datetime]]:
        """Offsets after `begin`, and the time of the output from there to the next one, or to `end`."""
        self._refresh()
        first = max(0, bisect_right(self._positions, begin) - 1)
        return [
            (max(0, self._positions[number] - begin), datetime.fromtimestamp(self._times_ms[number] / 1000, UTC))
            for number in range(first, bisect_left(self._positions, end))
        ]

    def _refresh(self) -> None:
        content, state = b"", (0, 0)
        with contextlib.suppress(OSError):
            found = self._path.stat()
            state = (found.st_ino, found.st_size)
            if state == self._state:
                return
            content = self._path.read_bytes()
        self._state = state
        numbers = array("Q", content[: len(content) // RECORD * RECORD])
        if sys.byteorder == "little":
            numbers.byteswap()
        self._positions, self._times_ms = numbers[::2], numbers[1::2]


def last_lines(log: Path, lines: int) -> int:
    """The position where the last `lines` lines begin, including an incomplete one."""
    pieces = _pieces(log)
    if not pieces:
        return 0
    end = start = pieces[-1].end
    tail = b""
    for piece in reversed(pieces):
        if piece.end < start:
            break  # a gap ends the search
        with contextlib.suppress(FileNotFoundError), piece.path.open("rb") as file:
            while start > piece.start and tail[:-1].count(b"\n") < lines:
                size = min(BUFFER, start - piece.start)
                file.seek(start - size - piece.start)
                tail = file.read(size) + tail
                start -= size
    kept = tail.splitlines(keepends=True)[-lines:] if lines > 0 else []
    return end - sum(map(len, kept))


def size_and_time(log: Path) -> tuple[int, float]:
    """The bytes of a log on the disk without its times, and its last change in seconds since the epoch."""
    head = log.stat()
    size, written_at = head.st_size, head.st_mtime
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(_segments(log)):
            with contextlib.suppress(FileNotFoundError):
                segment = entry.stat()
                size, written_at = size + segment.st_size, max(written_at, segment.st_mtime)
    return size, written_at


def times_size(log: Path) -> int:
    """The bytes of a log's times on the disk."""
    with contextlib.suppress(FileNotFoundError):
        return Path(times_path(str(log))).stat().st_size
    return 0


def remove(log: Path) -> None:
    shutil.rmtree(_segments(log), ignore_errors=True)
    times = times_path(str(log))
    for path in (new_times_path(times), times):
        Path(path).unlink(missing_ok=True)
    log.unlink(missing_ok=True)


def _segments(log: Path) -> Path:
    return log.with_name(f"{log.name}.d")


def _pieces(log: Path) -> list[_Piece]:
    """The files of a log in the order of their output; none without a log."""
    pieces: list[_Piece] = []
    with contextlib.suppress(FileNotFoundError):
        pieces.append(_Piece(log, 0, log.stat().st_size))
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(_segments(log)):
            with contextlib.suppress(FileNotFoundError):
                pieces.append(_Piece(Path(entry.path), int(entry.name), entry.stat().st_size))
    return sorted(pieces, key=lambda piece: piece.start)


def _read(piece: _Piece, place: int) -> bytes:
    with contextlib.suppress(FileNotFoundError), piece.path.open("rb") as file:
        file.seek(place - piece.start)
        return file.read(BUFFER)
    return b""

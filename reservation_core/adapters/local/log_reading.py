"""Reading logs that `bounded_log` writes, while it does: by how much the pod had printed, whatever is left out of that.

A log is `NAME.log` and its segments `NAME.log.d/START`. All functions block, and may raise OSError.
"""

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from reservation_core.adapters.local.bounded_log import BUFFER
from reservation_core.ports.cluster import LeftOut

_RETRIES = 20


@dataclass(frozen=True, slots=True)
class _Piece:
    """A file of a log: how much was printed before it, and how much it has."""

    path: Path
    start: int
    size: int

    @property
    def end(self) -> int:
        """How much was printed by its end."""
        return self.start + self.size


def read_from(log: Path, place: int, ends_line: bool) -> bytes:
    """The next at most 64 KiB of what is printed after the first `place` bytes; LeftOut where they are not kept.

    `ends_line`: whether what was read before ends with a line.
    """
    for _ in range(_RETRIES):
        # Nearly all logs are short: nothing is listed as long as the head has what is asked for.
        if chunk := _read(_Piece(log, 0, place + 1), place):
            return chunk
        pieces = _pieces(log)
        piece = next((piece for piece in pieces if place < piece.end), None)
        if piece is None:
            return b""
        if place < piece.start:
            return LeftOut(piece.start - place, begins_line=ends_line)
        if chunk := _read(piece, place):
            return chunk
        # It has just been left out.
    return b""


def last_lines(log: Path, lines: int) -> int:
    """After how many bytes the last `lines` lines begin; a line that has not ended yet counts."""
    pieces = _pieces(log)
    if not pieces:
        return 0
    end = start = pieces[-1].end
    tail = b""
    for piece in reversed(pieces):
        if piece.end < start:
            break  # what is left out ends the search
        with contextlib.suppress(FileNotFoundError), piece.path.open("rb") as file:
            while start > piece.start and tail[:-1].count(b"\n") < lines:
                size = min(BUFFER, start - piece.start)
                file.seek(start - size - piece.start)
                tail = file.read(size) + tail
                start -= size
    kept = tail.splitlines(keepends=True)[-lines:] if lines > 0 else []
    return end - sum(map(len, kept))


def size_and_time(log: Path) -> tuple[int, float]:
    """How many bytes a log has on the disk, and when it was last written, in seconds since the epoch."""
    head = log.stat()
    size, written_at = head.st_size, head.st_mtime
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(_segments(log)):
            with contextlib.suppress(FileNotFoundError):
                found = entry.stat()
                size, written_at = size + found.st_size, max(written_at, found.st_mtime)
    return size, written_at


def remove(log: Path) -> None:
    """Delete a log; one that is not there is nothing."""
    shutil.rmtree(_segments(log), ignore_errors=True)
    log.unlink(missing_ok=True)


def _segments(log: Path) -> Path:
    return log.with_name(f"{log.name}.d")


def _pieces(log: Path) -> list[_Piece]:
    """The files of a log in the order of what they hold; none where there is no log."""
    found: list[_Piece] = []
    with contextlib.suppress(FileNotFoundError):
        found.append(_Piece(log, 0, log.stat().st_size))
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(_segments(log)):
            with contextlib.suppress(FileNotFoundError):
                found.append(_Piece(Path(entry.path), int(entry.name), entry.stat().st_size))
    return sorted(found, key=lambda piece: piece.start)


def _read(piece: _Piece, place: int) -> bytes:
    with contextlib.suppress(FileNotFoundError), piece.path.open("rb") as file:
        file.seek(place - piece.start)
        return file.read(BUFFER)
    return b""

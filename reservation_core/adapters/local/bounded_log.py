"""A pod's log of bounded size: the first half of the bound, and the newest output.

`NAME.log` is the head. Later output is in segments `NAME.log.d/START`, named by the number of bytes printed before; the
oldest segment is removed before a new one begins. The names alone tell which bytes are left out, even after a kill.
Files begin and end with whole lines, except for lines that are longer than a file.
"""

# ruff: noqa: PTH102, PTH108, PTH116, SIM105
# Part of the supervisor, which starts once per pod: importing pathlib would cost 5 ms.

import os

from reservation_core.adapters.local.output_times import OutputTimes

BUFFER = 64 * 1024
SEGMENTS = 4
SMALLEST_LIMIT = 16 * 1024
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class BoundedLog:
    """Writes one pod's log of at most `limit` bytes; 0 is no bound. A full disk loses output without an error.

    `times`: where it notes when it is written.
    """

    def __init__(self, path: str, limit: int, times: OutputTimes | None = None) -> None:
        self._head = path
        self._limit = 0
        self._printed = 0  # by the pod, kept or not
        self._closed: list[tuple[str, int]] = []  # segments with their sizes, oldest first
        self._lost = False  # output was lost, so the next write begins a segment
        self._ends_line = True
        self._fd = -1
        self._times = times
        self._open(path)
        self.lower_limit(limit)

    def lower_limit(self, limit: int) -> None:
        """Lower the bound; a higher one changes nothing."""
        if limit <= 0 or 0 < self._limit <= limit:
            return
        self._limit = max(limit, SMALLEST_LIMIT)
        if self._file == self._head and self._written <= self._limit // 2:
            return
        try:
            if os.stat(self._head).st_size > self._limit // 2:
                os.truncate(self._head, self._limit // 2)
        except OSError:
            pass  # somebody removed it; its content counts as left out
        self._begin_segment()

    def write(self, data: bytes) -> None:
        """Append output of the pod."""
        if self._lost:
            self._begin_segment()
        while data:
            part = self._fitting(data)
            if not part:
                self._begin_segment()
                continue
            taken = self._append(part)
            data = data[taken:]
            if taken < len(part):
                self._lost = True
                self._printed += len(data)
                return

    def write_line(self, text: str) -> None:
        """Append a line of our own."""
        begin = "" if self._ends_line else "\n"
        self.write(f"{begin}gpu-dev: {text}\n".encode("utf-8", "replace"))

    def close(self) -> None:
        """Close the log; nothing is written to it any more."""
        if self._times is not None:
            self._times.close()
        self._close_file()

    def _close_file(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _fitting(self, data: bytes) -> bytes:
        """The beginning of `data` that fits into the current file: whole lines, unless a line is longer than a file."""
        if not self._limit:
            return data
        room = self._limit // (2 if self._file == self._head else 2 * SEGMENTS) - self._written
        if len(data) <= room:
            return data
        end = data.rfind(b"\n", 0, max(room, 0)) + 1
        if end or (self._ends_line and self._written):
            return data[:end]
        end = cut = max(room, 0)
        while end > max(0, cut - 3) and data[end] & 0xC0 == 0x80:  # not in the middle of a character
            end -= 1
        if not end and not self._written:
            end = cut  # no text, and an empty file: cut anywhere
        return data[:end]

    def _append(self, data: bytes) -> int:
        """Write to the current file; return the number of written bytes."""
        if self._times is not None:
            self._times.note(self._printed)
        taken = 0
        try:
            while taken < len(data) and self._fd >= 0:
                taken += os.write(self._fd, data[taken:])
        except OSError:
            pass
        self._written += taken
        self._printed += taken
        if taken:
            self._ends_line = data[taken - 1 : taken] == b"\n"
        return taken

    def _begin_segment(self) -> None:
        """Start a new segment, after making room for it."""
        self._close_file()
        if self._file != self._head and self._written:
            self._closed.append((self._file, self._written))
        elif self._file != self._head:
            _unlink(self._file)  # the next one has its name
        room = self._limit // 2 - self._limit // (2 * SEGMENTS)
        while self._closed and (self._closed[0][1] == 0 or (self._limit and _sum(self._closed) > room)):
            _unlink(self._closed.pop(0)[0])
        self._lost = False
        try:
            os.mkdir(self._head + ".d", 0o700)
        except OSError:
            pass  # it exists; any other error shows when the file is opened
        self._open(f"{self._head}.d/{self._printed:020d}")

    def _open(self, path: str) -> None:
        self._file = path
        self._written = 0
        try:
            self._fd = os.open(path, _FLAGS, 0o600)
        except OSError:
            self._fd = -1


def _sum(segments: list[tuple[str, int]]) -> int:
    return sum(size for _, size in segments)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return

"""When a pod printed: `NAME.log.times` beside its log, with at most one record a second.

A record has 16 bytes: the number of bytes printed before, and milliseconds since the epoch, both big-endian. Output has
the time of the last record before it, which differs from its own by less than the pace. At MOST_RECORDS (256 KiB) the
pace doubles until a quarter of them go, up to SLOWEST_MS; then the oldest go, and their output has no time.
"""

# ruff: noqa: PTH105, PTH123, TID251
# Part of the supervisor, which starts once per pod: importing pathlib would cost 5 ms.

import os
import time

RECORD = 16
MOST_RECORDS = 16_384
SLOWEST_MS = 64_000
_THINNED = MOST_RECORDS * 3 // 4
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class OutputTimes:
    """Notes the times of one pod's output. What a full disk does not take is lost without an error."""

    def __init__(self, log: str) -> None:
        self._path = times_path(log)
        self._records = 0
        self._every_ms = 1000
        self._last_ms: int | None = None
        self._fd = self._open()

    def note(self, position: int) -> None:
        """Note that output is printed now, after `position` bytes."""
        now_ms = int(time.time() * 1000)
        if self._fd < 0 or (self._last_ms is not None and _is_near(now_ms, self._last_ms, self._every_ms)):
            return
        try:
            if self._records >= MOST_RECORDS:
                self._last_ms = now_ms  # on a full disk, it is tried again after the pace
                self._thin()
            record = position.to_bytes(8, "big") + now_ms.to_bytes(8, "big")
            if os.write(self._fd, record) < RECORD:
                os.ftruncate(self._fd, self._records * RECORD)  # a reader takes whole records
                return
            self._records += 1
        except OSError:
            return
        self._last_ms = now_ms

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> int:
        try:
            return os.open(self._path, _FLAGS, 0o600)
        except OSError:
            return -1

    def _thin(self) -> None:
        with open(self._path, "rb") as file:
            content = file.read()
        kept = [content[at : at + RECORD] for at in range(0, len(content), RECORD)]
        every_ms = self._every_ms
        while len(kept) > _THINNED and every_ms < SLOWEST_MS:
            every_ms *= 2
            kept = _spaced(kept, every_ms)
        kept = kept[-_THINNED:]
        with open(new_times_path(self._path), "wb") as file:
            file.write(b"".join(kept))
        os.replace(new_times_path(self._path), self._path)
        self.close()
        self._fd = self._open()
        self._records, self._every_ms = len(kept), every_ms


def _is_near(time_ms: int, last_ms: int, every_ms: int) -> bool:
    """Whether the last record's time will do. It never does after a step of the clock, back or forth."""
    return 0 <= time_ms - last_ms < every_ms


def _spaced(records: list[bytes], every_ms: int) -> list[bytes]:
    """Records without those whose time is near that of the last one kept before them."""
    kept: list[bytes] = []
    last_ms = 0
    for record in records:
        time_ms = int.from_bytes(record[8:], "big")
        if not _is_near(time_ms, last_ms, every_ms):
            kept.append(record)
            last_ms = time_ms
    return kept


def times_path(log: str) -> str:
    """The file beside a log."""
    return f"{log}.times"


def new_times_path(times: str) -> str:
    """The file that replaces the times, while it is written."""
    return f"{times}.new"

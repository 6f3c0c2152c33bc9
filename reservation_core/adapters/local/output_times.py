"""When a pod printed: `NAME.log.times` beside its log, with at most one record a second.

A record has 16 bytes: the number of bytes printed before, and milliseconds since the epoch, both big-endian. Of
MOST_RECORDS every second one is removed, and they come half as often from then on: at most 256 KiB a pod.
"""

# ruff: noqa: PTH105, PTH123, TID251
# Part of the supervisor, which starts once per pod: importing pathlib would cost 5 ms.

import os
import time

RECORD = 16
MOST_RECORDS = 16_384
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class OutputTimes:
    """Notes the times of one pod's output. What a full disk does not take is lost without an error."""

    def __init__(self, log: str) -> None:
        self._path = times_path(log)
        self._records = 0
        self._every_ms = 1000
        self._next_ms = 0
        self._fd = self._open()

    def note(self, position: int) -> None:
        """Note that output is printed now, after `position` bytes."""
        now_ms = int(time.time() * 1000)
        if now_ms < self._next_ms or self._fd < 0:
            return
        self._next_ms = now_ms + self._every_ms
        try:
            if self._records >= MOST_RECORDS:
                self._thin()
            record = position.to_bytes(8, "big") + now_ms.to_bytes(8, "big")
            if os.write(self._fd, record) < RECORD:
                self.close()  # a reader takes whole records
            self._records += 1
        except OSError:
            return

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
        kept = b"".join(content[at : at + RECORD] for at in range(0, len(content), 2 * RECORD))
        with open(f"{self._path}.new", "wb") as file:
            file.write(kept)
        os.replace(f"{self._path}.new", self._path)
        self.close()
        self._fd = self._open()
        self._records = len(kept) // RECORD
        self._every_ms *= 2


def times_path(log: str) -> str:
    """The file beside a log."""
    return f"{log}.times"

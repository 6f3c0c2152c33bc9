"""The position in a pod's log, so that a broken stream goes on without doubled or lost lines.

The API starts a log at a given second, so every line is requested with its timestamp. The timestamp is removed, lines
that were already returned are skipped, and a partly returned line is completed. One case stays open: if only the last
lines were requested and the stream broke at its very first timestamp, earlier lines with that timestamp appear as well.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from reservation_core.ports.cluster import TimedOutput

_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")
_LONGEST_STAMP = 40

_Moment = tuple[datetime, int]  # the second, and nanoseconds


class LogPosition:
    """Feed it the chunks of one stream after another; `resume` before each stream but the first."""

    def __init__(self) -> None:
        self._stamp = b""  # of the last returned line
        self._whole = 0  # complete lines with that stamp
        self._part = 0  # bytes returned of one more line with that stamp
        self._head = b""  # the beginning of a line whose stamp is not complete
        self._inside = False  # past the stamp of a line
        self._stamped = False  # this line has a stamp
        self._line_stamp = b""
        self._drop: int | None = 0  # bytes of this line to skip; None: all
        self._former: tuple[_Moment, int, int] | None = None  # the end of the previous stream
        self._again = 0  # repeated lines with the former stamp

    def resume(self) -> str | None:
        """Expect a new stream, and return its `sinceTime`; None before the first line."""
        self._head, self._inside, self._drop, self._again = b"", False, 0, 0
        moment = _moment(self._stamp)
        self._former = None if moment is None else (moment, self._whole, self._part)
        return None if moment is None else moment[0].strftime("%Y-%m-%dT%H:%M:%SZ")

    def feed(self, chunk: bytes) -> TimedOutput:
        """The new part of a chunk, without timestamps but with the times of its lines."""
        new: list[bytes] = []
        length = 0
        stamps = [(0, self._line_stamp)] if self._inside else []
        lines = chunk.split(b"\n")
        for number, piece in enumerate(lines):
            ends = number < len(lines) - 1
            text = piece
            if not self._inside:
                begun = self._begin(piece, ends)
                if begun is None:
                    continue
                text = begun
                if self._drop is not None:
                    stamps.append((length, self._line_stamp))
            new.append(self._skip_returned(text + b"\n" if ends else text))
            length += len(new[-1])
            if ends:
                self._inside = False
                if self._drop == 0 and self._stamped:
                    self._whole, self._part = self._whole + 1, 0
        return TimedOutput(b"".join(new), partial(_times, stamps))

    def _begin(self, piece: bytes, ends: bool) -> bytes | None:
        """Remove the stamp from a line's beginning; None while the stamp is incomplete."""
        self._head += piece
        stamp, space, text = self._head.partition(b" ")
        if not space and not ends and len(self._head) <= _LONGEST_STAMP:
            return None
        whole, self._head = self._head, b""
        self._inside, self._drop = True, 0
        self._stamped, self._line_stamp = _STAMP.fullmatch(stamp) is not None, stamp
        if not self._stamped:
            # A message of the kubelet, not of the workload: there is no timestamp to resume from.
            return whole
        if self._former is not None:
            self._compare(stamp, *self._former)
        if self._former is None and stamp != self._stamp:
            self._stamp, self._whole, self._part = stamp, 0, 0
        return text

    def _compare(self, stamp: bytes, former: _Moment, whole: int, part: int) -> None:
        """Decide how much of a line the previous stream returned."""
        moment = _moment(stamp)
        if moment is not None and moment < former:
            self._drop = None
            return
        if moment == former:
            self._again += 1
            if self._again <= whole:
                self._drop = None
                return
            self._drop = part
        self._former = None

    def _skip_returned(self, text: bytes) -> bytes:
        if self._drop is None:
            return b""
        if self._drop:
            dropped = min(self._drop, len(text))
            self._drop -= dropped
            text = text[dropped:]
        if self._stamped:
            self._part += len(text)
        return text


def _times(stamps: Sequence[tuple[int, bytes]]) -> list[tuple[int, datetime | None]]:
    found = [(offset, _moment(stamp)) for offset, stamp in stamps]
    return [
        (offset, None if moment is None else moment[0] + timedelta(microseconds=moment[1] // 1000))
        for offset, moment in found
    ]


def _moment(stamp: bytes) -> _Moment | None:
    match = _STAMP.fullmatch(stamp)
    if match is None:
        return None
    second, fraction, offset = match.groups()
    try:
        at = datetime.fromisoformat((second + offset).decode()).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return at, int((fraction or b"").ljust(9, b"0"))

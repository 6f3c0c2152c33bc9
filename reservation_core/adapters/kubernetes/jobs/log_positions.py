"""Where one is in a pod's log, so that a broken stream goes on without doubled or lost lines.

The API can only be asked for what was printed since a given second, so every line is asked for with its timestamp: that
is taken off again, and of the lines that come a second time those are left out that were given before. A line that was
given in part is completed. One thing can't be told: where only the last lines were asked for, and the stream broke at
the very stamp that it began with, how many lines with that stamp came before them; those come then.
"""

import re
from datetime import UTC, datetime

_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")
_LONGEST_STAMP = 40

_Moment = tuple[datetime, int]  # the second, and nanoseconds


class LogPosition:
    """Feed it the chunks of one stream after another; `resume` before each stream but the first."""

    def __init__(self) -> None:
        self._stamp = b""  # of the line that was given last, or is being given
        self._whole = 0  # lines with that stamp given to their ends
        self._part = 0  # bytes given of one more line with that stamp
        self._head = b""  # the beginning of a line whose stamp is not complete
        self._inside = False  # behind the stamp of a line
        self._stamped = False  # this line has one
        self._drop: int | None = 0  # bytes of this line to leave out; None: all
        self._former: tuple[_Moment, int, int] | None = None  # where the stream before this one ended
        self._again = 0  # lines with the former stamp that came again

    def resume(self) -> str | None:
        """Expect a new stream. The `sinceTime` to ask it from; None when nothing was given yet."""
        self._head, self._inside, self._drop, self._again = b"", False, 0, 0
        moment = _moment(self._stamp)
        self._former = None if moment is None else (moment, self._whole, self._part)
        return None if moment is None else moment[0].strftime("%Y-%m-%dT%H:%M:%SZ")

    def feed(self, chunk: bytes) -> bytes:
        """What of this chunk is new, without timestamps."""
        given: list[bytes] = []
        lines = chunk.split(b"\n")
        for number, piece in enumerate(lines):
            ends = number < len(lines) - 1
            text = piece
            if not self._inside:
                begun = self._begin(piece, ends)
                if begun is None:
                    continue
                text = begun
            given.append(self._give(text + b"\n" if ends else text))
            if ends:
                self._inside = False
                if self._drop == 0 and self._stamped:
                    self._whole, self._part = self._whole + 1, 0
        return b"".join(given)

    def _begin(self, piece: bytes, ends: bool) -> bytes | None:
        """Take the stamp off a line's beginning; None while it is not complete."""
        self._head += piece
        stamp, space, text = self._head.partition(b" ")
        if not space and not ends and len(self._head) <= _LONGEST_STAMP:
            return None
        whole, self._head = self._head, b""
        self._inside, self._drop = True, 0
        self._stamped = _STAMP.fullmatch(stamp) is not None
        if not self._stamped:
            # Not a line of the workload's: the kubelet's own word about the log. It has no place to come back to.
            return whole
        if self._former is not None:
            self._compare(stamp, *self._former)
        if self._former is None and stamp != self._stamp:
            self._stamp, self._whole, self._part = stamp, 0, 0
        return text

    def _compare(self, stamp: bytes, former: _Moment, whole: int, part: int) -> None:
        """Decide how much of a line was given by the stream before."""
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

    def _give(self, text: bytes) -> bytes:
        if self._drop is None:
            return b""
        if self._drop:
            dropped = min(self._drop, len(text))
            self._drop -= dropped
            text = text[dropped:]
        if self._stamped:
            self._part += len(text)
        return text


def _moment(stamp: bytes) -> _Moment | None:
    found = _STAMP.fullmatch(stamp)
    if found is None:
        return None
    second, fraction, offset = found.groups()
    try:
        at = datetime.fromisoformat((second + offset).decode()).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return at, int((fraction or b"").ljust(9, b"0"))

"""When GPUs are free: the ledger's rows per GPU, and the earliest time at which enough GPUs are free together.

The planner counts times and lengths as ints of microseconds (times since 1970, UTC): a plan compares times a million
times, and comparing datetimes costs several times as much. Ranges are half-open. A *window* is a closed range of start
times: at every start in it a request fits.
"""

from bisect import insort
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

FOREVER = 2**62
"""Later than any time."""

OVERRUN = 60_000_000
"""How much longer (in microseconds from now) a pod is expected to run that should have ended already."""

Range = tuple[int, int]
"""[start, end) of a busy range, or the closed [first, last] of a window."""

Row = tuple[int, int, bool, str]
"""(start, end, held, reservation id): one open row of the ledger on a GPU."""


def to_micros(moment: datetime) -> int:
    """A timezone-aware datetime as microseconds since 1970, exactly."""
    since = moment - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def to_moment(micros: int) -> datetime:
    """Microseconds since 1970 as a UTC datetime."""
    return EPOCH + timedelta(0, 0, micros)


def step_begin(at: datetime, step: timedelta) -> datetime:
    """The begin of the step that a time lies in; steps are counted since 1970."""
    return at - (at - EPOCH) % step


def length_micros(length: timedelta) -> int:
    """A length in microseconds, exactly."""
    return (length.days * 86_400 + length.seconds) * 1_000_000 + length.microseconds


class GpuCalendar:
    """The open rows of one GPU, in order of start.

    A held row is busy from now on, whatever its start, until its end, or until `OVERRUN` from now if that is past.
    Other rows that have ended are ignored.
    """

    __slots__ = ("rows",)

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.rows: list[Row] = sorted(rows)

    def add(self, row: Row) -> None:
        insort(self.rows, row)

    def remove(self, reservation_id: str) -> None:
        """Remove all rows of a reservation."""
        self.rows = [row for row in self.rows if row[3] != reservation_id]

    def is_free(self, now: int) -> bool:
        """Whether no row covers `now`."""
        for start, end, held, _ in self.rows:  # noqa: SIM110 - a generator costs more than the row or two, and this is hot
            if held or start <= now < end:
                return False
        return True

    def next_row(self, now: int) -> Row | None:
        """The next row that begins after `now`."""
        for row in self.rows:
            if row[0] > now:
                return row
        return None

    def held_by_others(self, reservation_id: str) -> str | None:
        """Another reservation whose pod may be on the GPU."""
        return next((owner for _, _, held, owner in self.rows if held and owner != reservation_id), None)

    def overruns(self, now: int) -> bool:
        """Whether a pod may still run although its range is over."""
        for _, end, held, _ in self.rows:  # noqa: SIM110 - as above
            if held and end <= now:
                return True
        return False

    def busy(self, now: int) -> list[Range]:
        """Busy ranges from `now` on: disjoint, in order, not touching."""
        if not self.rows:
            return []
        ranges = [(start, end) for start, end, _ in self.busy_rows(now)]
        return merge(ranges) if len(ranges) > 1 else ranges

    def busy_rows(self, now: int) -> list[tuple[int, int, str]]:
        """The busy ranges of its rows from `now` on, each with its reservation."""
        ranges: list[tuple[int, int, str]] = []
        for start, end, held, owner in self.rows:
            if held:
                ranges.append((min(start, now), end if end > now else now + OVERRUN, owner))
            elif end > now:
                ranges.append((start, end, owner))
        return ranges


def merge(ranges: Iterable[Range]) -> list[Range]:
    """The ranges as disjoint ones in order; touching ranges become one."""
    merged: list[Range] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            if end > merged[-1][1]:
                merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


def is_free_during(busy: Sequence[Range], start: int, end: int) -> bool:
    """Whether nothing in `busy` overlaps [start, end)."""
    return not any(busy_start < end and start < busy_end for busy_start, busy_end in busy)


def windows_of_at_least(count: int, windows: Sequence[Sequence[Range]]) -> list[Range]:
    """The windows that at least `count` of these window lists share; none if there are fewer lists.

    Each list must be in order and disjoint, and its last window must never close (end at FOREVER).
    """
    if count > len(windows):
        return []
    if count == 1 and len(windows) == 1:
        return list(windows[0])
    if all(len(window) == 1 for window in windows):
        firsts = sorted([window[0][0] for window in windows])
        return [(firsts[count - 1], FOREVER)]
    # At equal times openings (0) come before closings (1): windows are closed, so they still share that instant.
    edges = sorted(
        [(first, 0) for window in windows for first, _ in window]
        + [(last, 1) for window in windows for _, last in window]
    )
    shared: list[Range] = []
    depth = opened = 0
    for at, closing in edges:
        if closing:
            if depth == count:
                shared.append((opened, at))
            depth -= 1
        else:
            depth += 1
            if depth == count:
                opened = at
    return shared


def node_windows(cards: Sequence[Sequence[Range]], gpus: int, length: int, now: int) -> list[Range]:
    """The windows in which `gpus` of a node's GPUs, given by their busy ranges, are free for `length`."""
    # The same as `windows_of_at_least` of each GPU's windows without making these: this runs for thousands of nodes. An
    # edge is twice its time, plus one where a window closes.
    if gpus > len(cards):
        return []
    edges: list[int] = []
    for busy in cards:
        free_from = now
        for start, end in busy:
            if start - free_from >= length:
                edges.append(2 * free_from)
                edges.append(2 * (start - length) + 1)
            if end > free_from:
                free_from = end
        edges.append(2 * free_from)
    edges.sort()
    windows: list[Range] = []
    depth = opened = 0
    for edge in edges:
        if edge & 1:
            if depth == gpus:
                windows.append((opened, edge >> 1))
            depth -= 1
        else:
            depth += 1
            if depth == gpus:
                opened = edge >> 1
    windows.append((opened, FOREVER))
    return windows


def earliest_start(windows: Sequence[Sequence[Range]], nodes: int, now: int) -> int | None:
    """The first time from `now` on in the windows of at least `nodes` nodes; None when there is none.

    `windows` may have been made for an earlier `now`. Nodes without windows are skipped.
    """
    if nodes == 1:
        best = FOREVER
        for window in windows:
            for first, last in window:
                if last >= now:
                    best = min(best, max(first, now))
                    break
        return best if best < FOREVER else None
    shared = windows_of_at_least(nodes, [window for window in windows if window])
    for first, last in shared:
        if last >= now:
            return max(first, now)
    return None

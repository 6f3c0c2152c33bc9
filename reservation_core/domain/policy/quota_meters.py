"""How much is used under one quota at each time, and from when on a request stays within a limit.

A meter counts amounts; the limit comes with the question, since it may differ from job to job. Times and lengths are
ints of microseconds as in `calendar`; GPU-time is GPUs times microseconds. A week begins on Monday 00:00 UTC.
"""

from typing import NamedTuple

import numpy as np

from reservation_core.domain.calendar import FOREVER, length_micros, to_micros
from reservation_core.domain.policy.quota_windows import A_MONDAY, WEEK

_WEEK = length_micros(WEEK)
_FIRST = to_micros(A_MONDAY) % _WEEK
_REMEMBERED = 256


class Amount(NamedTuple):
    """Some GPUs in [start, end)."""

    gpus: int
    start: int
    end: int


class AtOnce:
    """A meter of GPUs at each instant. Limits are numbers of GPUs."""

    __slots__ = ("_count", "_known", "_levels", "_table", "_times")

    def __init__(self) -> None:
        self._table = np.zeros((2, 64), dtype=np.int64)
        self._times, self._levels = self._table
        self._times[0] = -FOREVER
        self._count = 1
        # (limit - GPUs, length): no such request fits between these times, until something is removed.
        self._known: dict[tuple[int, int], tuple[int, int]] = {}

    def add(self, amount: Amount) -> None:
        self._change(amount.start, amount.end, amount.gpus)

    def remove(self, amount: Amount) -> None:
        """Remove an amount that was added."""
        self._known.clear()
        self._change(amount.start, amount.end, -amount.gpus)

    def _change(self, start: int, end: int, gpus: int) -> None:
        if start >= end:
            return
        first = self._edge(start)
        last = self._edge(end)
        self._levels[first:last] += gpus
        # Drop times without a change.
        for index in (last, first):
            if self._levels[index] == self._levels[index - 1]:
                self._table[:, index : self._count - 1] = self._table[:, index + 1 : self._count]
                self._count -= 1

    def _edge(self, at: int) -> int:
        """The index of a time, which is inserted if missing."""
        index = int(self._times[: self._count].searchsorted(at))
        if index < self._count and self._times[index] == at:
            return index
        if self._count == self._table.shape[1]:
            self._table = np.concatenate((self._table, np.zeros_like(self._table)), axis=1)
            self._times, self._levels = self._table
        self._table[:, index + 1 : self._count + 1] = self._table[:, index : self._count]
        self._times[index] = at
        self._levels[index] = self._levels[index - 1]
        self._count += 1
        return index

    def earliest(self, gpus: int, length: int, start: int, limit: int) -> int | None:
        """The first time from `start` on from which `gpus` more for `length` stay within `limit`; None: never."""
        if gpus > limit:
            return None
        key = (limit - gpus, length)
        since, until = self._known.get(key, (start, start))
        if not since <= start <= until:
            return self._search(limit - gpus, length, start)
        earliest = self._search(limit - gpus, length, until)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[key] = (since, earliest)
        return earliest

    def _search(self, room: int, length: int, start: int) -> int:
        times = self._times[: self._count]
        first = int(times.searchsorted(start, side="right")) - 1
        full = np.flatnonzero(self._levels[first : self._count] > room)
        if not full.size:
            return start
        full += first
        begins = times[full]
        if begins[0] >= start + length:
            return start
        # The last step has no GPUs and never ends, so one always follows those that are full.
        ends = times[full + 1]
        wide = np.append(begins[1:] - ends[:-1] >= length, True)
        return int(ends[wide.argmax()])

    def most(self, start: int, end: int) -> tuple[int, int]:
        """The most GPUs at an instant of [start, end), and the first such instant."""
        times = self._times[: self._count]
        first = int(times.searchsorted(start, side="right")) - 1
        last = int(times.searchsorted(end))
        if last <= first:
            return 0, start
        peak = first + int(self._levels[first:last].argmax())
        return int(self._levels[peak]), max(int(times[peak]), start)


class InWeeks:
    """A meter of GPU-time in each week. Limits are GPU-time."""

    __slots__ = ("_full", "_used")

    def __init__(self) -> None:
        self._used: dict[int, int] = {}
        # (limit, GPUs): all weeks from the first to before the second are full, until something is removed.
        self._full: dict[tuple[int, int], tuple[int, int]] = {}

    def add(self, amount: Amount) -> None:
        self._change(amount, 1)

    def remove(self, amount: Amount) -> None:
        """Remove an amount that was added."""
        self._full.clear()
        self._change(amount, -1)

    def _change(self, amount: Amount, sign: int) -> None:
        for week in _weeks(amount.start, amount.end):
            used = self._used.get(week, 0) + sign * amount.gpus * _part(week, amount.start, amount.end)
            if used:
                self._used[week] = used
            else:
                self._used.pop(week, None)

    def earliest(self, gpus: int, length: int, start: int, limit: int) -> int | None:
        """The first time from `start` on from which `gpus` more for `length` keep every week within `limit`."""
        at = self._after_full(gpus, start, limit)
        # Beyond the last used week all weeks are alike: two starts are enough.
        last = max(max(self._used, default=at), at) + 2 * _WEEK
        while at <= last:
            for week in _weeks(at, at + length):
                room = max(limit - self._used.get(week, 0), 0) // gpus
                if _part(week, at, at + length) > room:
                    # A later start helps only if less of the request lies in this week.
                    at = week + _WEEK - room
                    break
            else:
                return at
        return None

    def _after_full(self, gpus: int, start: int, limit: int) -> int:
        """`start`, or the end of the full weeks from it on."""
        week = _week_of(start)
        since, until = self._full.get((limit, gpus), (week, week))
        known = since <= week <= until
        until = until if known else week
        while limit - self._used.get(until, 0) < gpus <= limit:
            until += _WEEK
        if known:
            if len(self._full) >= _REMEMBERED:
                self._full.clear()
            self._full[limit, gpus] = (since, until)
        return start if until == week else until

    def first_over(self, gpus: int, length: int, start: int, limit: int) -> tuple[int, int, int]:
        """The first week in which `gpus` more from `start` for `length` break the limit; what they add, what is used.

        Raises ValueError where they break it in no week.
        """
        for week in _weeks(start, start + length):
            part = gpus * _part(week, start, start + length)
            used = self._used.get(week, 0)
            if used + part > limit:
                return week, part, used
        raise ValueError("every week stays within its limit")


Meter = AtOnce | InWeeks


def _week_of(at: int) -> int:
    return at - (at - _FIRST) % _WEEK


def _weeks(start: int, end: int) -> range:
    """The beginnings of the weeks that [start, end) touches."""
    return range(_week_of(start), end, _WEEK) if start < end else range(0)


def _part(week: int, start: int, end: int) -> int:
    return min(end, week + _WEEK) - max(start, week)

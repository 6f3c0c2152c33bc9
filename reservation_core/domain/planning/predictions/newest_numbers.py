"""The newest of many numbers, for quantiles of what has been lately."""

from bisect import bisect_left, bisect_right, insort
from collections import deque


class NewestNumbers:
    """So many numbers at most; a further one replaces the oldest."""

    __slots__ = ("_in_order", "_newest", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._newest: deque[float] = deque()
        self._in_order: list[float] = []

    def __len__(self) -> int:
        return len(self._in_order)

    @property
    def oldest_first(self) -> tuple[float, ...]:
        """All numbers, the newest last."""
        return tuple(self._newest)

    def add(self, number: float) -> None:
        """Add the newest."""
        if len(self._newest) == self._size:
            del self._in_order[bisect_left(self._in_order, self._newest.popleft())]
        self._newest.append(number)
        insort(self._in_order, number)

    def quantile(self, part: float) -> float:
        """The number that this part of all is at most, rounded up; the largest or smallest beyond. Needs a number."""
        last = len(self._in_order) - 1
        return self._in_order[max(0, min(last, int(part * (last + 2))))]

    def quantile_above(self, part: float, least: float) -> float | None:
        """Like `quantile`, with a part below 1, of those above a number (0.5: their median); None if none is."""
        first = bisect_right(self._in_order, least)
        count = len(self._in_order) - first
        return self._in_order[first + int(part * count)] if count else None

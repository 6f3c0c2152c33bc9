"""Rate limits by key: a token bucket for each, in bounded memory."""

import math
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """`per_s` a second on average, and `burst` at once after a pause."""

    per_s: float
    burst: int


class _Rest:
    """The shared key of sources without a bucket of their own."""


class TokenBuckets:
    """Buckets by key, at most `most`. Times are seconds of a monotonic clock.

    A full bucket is dropped, which changes nothing. While all are in use, new keys share one bucket, so that nobody
    gets a fresh bucket by displacing others.
    """

    def __init__(self, pace: Pace, most: int) -> None:
        self._pace = pace
        self._most = most
        # The least recently used first: (tokens left then, time).
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: Hashable, now: float) -> float:
        """Take a token: 0 if there was one, else the seconds until there is one, and nothing is taken."""
        self._forget_full(now)
        if key not in self._buckets and len(self._buckets) >= self._most:
            key = _Rest
        left = self._left(key, now)
        if left < 1:
            return self._wait(left)
        self._buckets[key] = (left - 1, now)
        self._buckets.move_to_end(key)
        return 0.0

    def wait(self, key: Hashable, now: float) -> float:
        """The seconds until there is a token; 0 if there is one. Nothing is taken."""
        self._forget_full(now)
        if key not in self._buckets and len(self._buckets) >= self._most:
            key = _Rest
        return self._wait(self._left(key, now))

    def _left(self, key: Hashable, now: float) -> float:
        left, at = self._buckets.get(key, (float(self._pace.burst), now))
        return min(float(self._pace.burst), left + (now - at) * self._pace.per_s)

    def _wait(self, left: float) -> float:
        return 0.0 if left >= 1 else (1 - left) / self._pace.per_s

    def _forget_full(self, now: float) -> None:
        # A bucket that was unused for this long is full, however empty it was.
        full_after = self._pace.burst / self._pace.per_s
        while self._buckets:
            key, (_, at) = next(iter(self._buckets.items()))
            if now - at < full_after:
                return
            del self._buckets[key]


def whole_seconds(wait: float) -> int:
    """A wait for `Retry-After`: rounded up, at least 1."""
    return max(1, math.ceil(wait))

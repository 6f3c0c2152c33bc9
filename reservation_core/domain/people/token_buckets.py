"""How often each of many may do something: a bucket of tokens for each, in bounded memory."""

import math
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """`per_s` a second in the long run, and `burst` at once after a rest."""

    per_s: float
    burst: int


class _Rest:
    """Sources without room for a bucket of their own."""


class TokenBuckets:
    """Buckets by key, `most` at a time. Times are seconds of any clock that nobody sets, and never go back.

    A bucket that is full again is forgotten, which changes nothing. While all of them are in use, newcomers share one:
    nobody gets a fresh bucket by having others thrown away.
    """

    def __init__(self, pace: Pace, most: int) -> None:
        self._pace = pace
        self._most = most
        # By when they were last used, the oldest first: tokens left then, and when that was.
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._buckets)

    def take(self, key: Hashable, now: float) -> float:
        """Take a token: 0 when there was one, else in how many seconds there will be one. Nothing is taken then."""
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
        """In how many seconds there will be a token; 0 when there is one. Nothing is taken."""
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
        # One that nobody has used for so long is full, however empty it was.
        full_after = self._pace.burst / self._pace.per_s
        while self._buckets:
            key, (_, at) = next(iter(self._buckets.items()))
            if now - at < full_after:
                return
            del self._buckets[key]


def whole_seconds(wait: float) -> int:
    """A wait as `Retry-After` says it: rounded up, 1 at least."""
    return max(1, math.ceil(wait))

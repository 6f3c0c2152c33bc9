"""The rate of pod creations: the configured maximum, lower while the API server pushes back.

Pure: the time (seconds of any monotonic clock) is passed in.
"""

from math import inf

_HALVINGS = 6  # at most, so that the rate recovers soon after the server does
_CALM_S = 1.0  # one overload refuses many requests, and must halve the rate once
_REGROWTH_S = 20.0  # from zero to the full rate
_BURST_S = 0.2
_LONGEST_PAUSE_S = 60.0  # a proxy before the server may send any Retry-After


class CreatePacing:
    """A token bucket whose rate halves when the server pushes back and otherwise grows linearly.

    `per_s` is the maximum rate in operations a second; 0 means no limit except the server's `Retry-After`.
    """

    def __init__(self, per_s: float) -> None:
        self._most = per_s or inf
        self._least = max(self._most / 2**_HALVINGS, min(1.0, self._most)) if per_s else inf
        self._burst = max(1.0, self._most * _BURST_S)
        self._tokens = self._burst
        self._filled_at: float | None = None
        self._halved: tuple[float, float] | None = None  # the rate, and when it was set
        self._paused_until = -inf

    def rate(self, now: float) -> float:
        """The current rate in operations a second; infinite without a limit."""
        if self._halved is None or self._most == inf:
            return self._most
        rate, at = self._halved
        return min(self._most, rate + (now - at) * self._most / _REGROWTH_S)

    def take(self, now: float) -> float:
        """Take a token and return 0, or return the seconds until the next attempt makes sense."""
        if now < self._paused_until:
            return self._paused_until - now
        if self._most == inf:
            return 0.0
        rate = self.rate(now)
        if self._filled_at is not None:
            self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * rate)
        self._filled_at = now
        if self._tokens < 1 - 1e-9:
            return (1 - self._tokens) / rate
        self._tokens -= 1
        return 0.0

    def slow_down(self, now: float, retry_after: float | None = None) -> None:
        """Halve the rate, and pause for `retry_after` seconds, after the server refused a request as too many."""
        if retry_after is not None:
            self._paused_until = max(self._paused_until, now + min(retry_after, _LONGEST_PAUSE_S))
        if self._most == inf or (self._halved is not None and now - self._halved[1] < _CALM_S):
            return
        self._halved = (max(self._least, self.rate(now) / 2), now)
        self._tokens = min(self._tokens, 1.0)

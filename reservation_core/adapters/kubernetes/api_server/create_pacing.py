"""How fast pods are created: as fast as is allowed, slower while the API server says that it is too much.

Pure: the time (seconds of any clock that only goes forward) is passed in.
"""

from math import inf

_HALVINGS = 6  # of the rate, at most: a server that recovers must not find us asleep
_CALM_S = 1.0  # one overload answers many requests; it halves the rate once
_REGROWTH_S = 20.0  # from nothing to the whole rate
_BURST_S = 0.2
_LONGEST_PAUSE_S = 60.0  # whoever stands between us and the server may ask for any number of seconds


class CreatePacing:
    """A token bucket whose rate halves when the server pushes back and grows again, evenly, while it does not.

    `per_s` is the rate at best, in operations a second; 0 means no limit but the pauses that the server asks for.
    """

    def __init__(self, per_s: float) -> None:
        self._most = per_s or inf
        self._least = max(self._most / 2**_HALVINGS, min(1.0, self._most)) if per_s else inf
        self._burst = max(1.0, self._most * _BURST_S)
        self._tokens = self._burst
        self._filled_at: float | None = None
        self._halved: tuple[float, float] | None = None  # the rate then, and when
        self._paused_until = -inf

    def rate(self, now: float) -> float:
        """Operations a second, now; infinite without a limit."""
        if self._halved is None or self._most == inf:
            return self._most
        rate, at = self._halved
        return min(self._most, rate + (now - at) * self._most / _REGROWTH_S)

    def take(self, now: float) -> float:
        """Take a token: 0 when there was one, else after how many seconds to ask again."""
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

    def pushed_back(self, now: float, retry_after: float | None = None) -> None:
        """The server said that it is too much, and perhaps for how many seconds to leave it alone."""
        if retry_after is not None:
            self._paused_until = max(self._paused_until, now + min(retry_after, _LONGEST_PAUSE_S))
        if self._most == inf or (self._halved is not None and now - self._halved[1] < _CALM_S):
            return
        self._halved = (max(self._least, self.rate(now) / 2), now)
        self._tokens = min(self._tokens, 1.0)

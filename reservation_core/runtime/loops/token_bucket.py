"""A token bucket: a rate of operations in the long run, with short bursts."""

import asyncio


class TokenBucket:
    """Limits operations to `rate` a second, with bursts of up to `burst` after a rest."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = max(1.0, burst)
        self._tokens = self._burst
        self._filled_at: float | None = None

    async def take(self, count: int = 1) -> None:
        """Wait until `count` operations, which begin together, have their tokens."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._filled_at is not None:
            self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        # A negative number reserves later tokens, so that later callers wait longer.
        self._tokens -= count
        if self._tokens < 0:
            await asyncio.sleep(-self._tokens / self._rate)

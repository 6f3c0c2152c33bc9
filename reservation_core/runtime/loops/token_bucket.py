"""A token bucket: so many operations a second in the long run, a short burst at once."""

import asyncio


class TokenBucket:
    """Lets `rate` operations a second through, and up to `burst` at once after a rest."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = max(1.0, burst)
        self._tokens = self._burst
        self._filled_at: float | None = None

    async def take(self, count: int = 1) -> None:
        """Wait until each of so many, which begin together, has a token: as long as the last would wait by itself."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._filled_at is not None:
            self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        # Going below zero reserves later tokens; whoever comes next waits behind.
        self._tokens -= count
        if self._tokens < 0:
            await asyncio.sleep(-self._tokens / self._rate)

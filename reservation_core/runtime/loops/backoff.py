"""Pauses before another attempt: growing, bounded and random."""

import asyncio
import random
from contextlib import suppress


class Backoff:
    """Pauses in seconds that double from `first_s` to `longest_s`, each random within its upper half."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = min(first_s, longest_s)
        self._longest_s = longest_s
        self._next_s = self._first_s

    def next(self) -> float:
        pause = self._next_s * random.uniform(0.5, 1)  # noqa: S311 -- spreads load, keeps no secret
        self._next_s = min(self._longest_s, 2 * self._next_s)
        return pause

    def reset(self) -> None:
        """Begin again with the shortest pause, after a success."""
        self._next_s = self._first_s


async def pause(seconds: float, stop: asyncio.Event | None) -> None:
    """Sleep, but not past `stop`."""
    if stop is None or seconds <= 0:
        await asyncio.sleep(max(0.0, seconds))
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()

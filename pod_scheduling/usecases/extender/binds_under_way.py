"""A limit for questions while many binds are under way."""

import asyncio


class BindsUnderWay:
    """While `at_once` binds are under way, a turn takes up to `pause_s` seconds."""

    def __init__(self, at_once: int, pause_s: float) -> None:
        self._at_once = at_once
        self._pause_s = pause_s
        self._count = 0
        self._room = asyncio.Event()
        self._room.set()

    async def turn(self) -> None:
        """Wait while many are under way.

        A scheduler binds beside its next question: unslowed, questions would come so fast that binds are answered
        after it has given them up, and each be judged by older news.
        """
        if self._room.is_set():
            return
        try:
            async with asyncio.timeout(self._pause_s):
                await self._room.wait()
        except TimeoutError:
            pass

    def begin(self) -> None:
        """Count a bind that begins."""
        self._count += 1
        if self._count >= self._at_once:
            self._room.clear()

    def end(self) -> None:
        """Count a bind that ends."""
        self._count -= 1
        if self._count < self._at_once:
            self._room.set()

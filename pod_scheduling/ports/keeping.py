"""Restarting an endless loop after a failure, for use cases that consist of several."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

Keep = Callable[[str, Callable[[], Awaitable[object]]], Coroutine[Any, Any, None]]
"""Runs work that never ends by itself until it is cancelled, and begins it again whenever it fails. The name is what
failures are counted, logged and shown by."""


async def not_kept(_name: str, run: Callable[[], Awaitable[object]]) -> None:
    """Run it once, for callers that want to see its errors."""
    await run()

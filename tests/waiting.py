"""Waiting for a condition instead of for time."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 90.0
"""Many times what anything takes: how busy a machine is says nothing about the code, and who succeeds never waits."""

_PAUSE_S = 0.01


async def eventually(condition: Callable[[], Awaitable[T] | T], timeout: float = PATIENCE_S) -> T:
    """Ask `condition` (plain or async) until its answer is true; returns that answer.

    Raises AssertionError after `timeout` seconds, with the last answer.
    """
    deadline = time.monotonic() + timeout
    while True:
        answer = condition()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"{condition!r} did not come true within {timeout} s; its last answer: {answer!r}")
        await asyncio.sleep(_PAUSE_S)


def eventually_sync(condition: Callable[[], T], timeout: float = PATIENCE_S) -> T:
    """The same outside asyncio."""
    deadline = time.monotonic() + timeout
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"{condition!r} did not come true within {timeout} s; its last answer: {answer!r}")
        time.sleep(_PAUSE_S)

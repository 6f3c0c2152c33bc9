"""Waiting for a condition instead of for time."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 90.0
"""Many times what anything takes: how busy a machine is says nothing about the code, and who succeeds never waits."""

_SHORTEST_S, _LONGEST_S = 0.01, 0.1
_SHARE = 20
"""A pause is this part of what was waited for so far: what takes seconds is not asked for a hundred times in one."""


def _pause(began: float, asked: float) -> float:
    """How long to rest now after a question that was asked then: as long as it took at least, so that others work."""
    now = time.monotonic()
    return min(_LONGEST_S, max(_SHORTEST_S, now - asked, (now - began) / _SHARE))


async def eventually(condition: Callable[[], Awaitable[T] | T], timeout: float = PATIENCE_S) -> T:
    """Ask `condition` (plain or async) until its answer is true; returns that answer.

    Raises AssertionError after `timeout` seconds, with the last answer.
    """
    began = time.monotonic()
    while True:
        asked = time.monotonic()
        answer = condition()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        if time.monotonic() > began + timeout:
            raise AssertionError(f"{condition!r} did not come true within {timeout} s; its last answer: {answer!r}")
        await asyncio.sleep(_pause(began, asked))


def eventually_sync(condition: Callable[[], T], timeout: float = PATIENCE_S) -> T:
    """The same outside asyncio."""
    began = time.monotonic()
    while True:
        asked = time.monotonic()
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > began + timeout:
            raise AssertionError(f"{condition!r} did not come true within {timeout} s; its last answer: {answer!r}")
        time.sleep(_pause(began, asked))

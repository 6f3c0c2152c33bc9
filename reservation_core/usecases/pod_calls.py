"""Calling the cluster for many pods, several at once, while their pod locks are held."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from reservation_core.ports.cluster import ClusterUnavailableError, PodRefusedError

_AT_ONCE = 16

PodCall = Callable[[], Awaitable[None]]


async def call_all(
    calls: Sequence[PodCall],
    *,
    slow_after: timedelta | None = None,
    while_slow: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Make every call, or none after the first that fails; returns or raises when all that were begun have ended.

    A call that is given up may still be carried out: while one is under way, nobody else may look at these pods. When
    they have not ended `slow_after` they began, `while_slow` is awaited once beside them. Raises PodRefusedError where
    there is one, else ClusterUnavailableError.
    """
    left = iter(calls)
    failures: list[PodRefusedError | ClusterUnavailableError] = []

    async def work() -> None:
        for call in left:
            if failures:
                return
            try:
                await call()
            except (PodRefusedError, ClusterUnavailableError) as failure:
                failures.append(failure)

    tasks = {asyncio.create_task(work()) for _ in range(min(_AT_ONCE, len(calls)))}
    try:
        pending = tasks
        if slow_after is not None and while_slow is not None and tasks:
            _, pending = await asyncio.wait(
                tasks, timeout=slow_after.total_seconds(), return_when=asyncio.FIRST_EXCEPTION
            )
            if pending and not any(task.done() and task.exception() for task in tasks):
                await while_slow()
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for failure in failures:
        if isinstance(failure, PodRefusedError):
            raise failure
    for failure in failures:
        raise failure

"""Call the cluster for many pods, several at once, while their pod locks are held."""

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
    """Make all calls, but begin none after a failure; returns or raises when all begun calls have ended.

    A pending call may still be carried out, so no other process may act on these pods meanwhile. During the calls
    `while_slow` is awaited every `slow_after`. Raises PodRefusedError if any call did, else ClusterUnavailableError.
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
        patience = None if slow_after is None else slow_after.total_seconds()
        while pending:
            done, pending = await asyncio.wait(pending, timeout=patience, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
            if pending and while_slow is not None:
                await while_slow()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for failure in failures:
        if isinstance(failure, PodRefusedError):
            raise failure
    for failure in failures:
        raise failure

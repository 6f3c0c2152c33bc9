"""Calling the cluster for many pods of one reservation, several at once, while a transaction holds its pod lock."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from reservation_core.ports.cluster import ClusterUnavailableError, PodRefusedError
from reservation_core.ports.transactions import UnitOfWork

_AT_ONCE = 16

PodCall = Callable[[], Awaitable[None]]


async def call_all(uow: UnitOfWork, reservation_id: str, calls: Sequence[PodCall], *, touch: timedelta) -> None:
    """Make every call, or none after the first that fails; returns or raises when all that were begun have ended.

    A call that is given up may still be carried out: while one is under way, nobody else may look at these pods. Every
    `touch` the database hears of us, so that it doesn't end a transaction that seems to be idle. Raises PodRefusedError
    where there is one, else ClusterUnavailableError.
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
    pending = set(tasks)
    try:
        while pending:
            done, pending = await asyncio.wait(
                pending, timeout=touch.total_seconds(), return_when=asyncio.FIRST_EXCEPTION
            )
            for task in done:
                task.result()
            if pending:
                await uow.hold_pod_lock(reservation_id)
    finally:
        for task in pending:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for failure in failures:
        if isinstance(failure, PodRefusedError):
            raise failure
    for failure in failures:
        raise failure

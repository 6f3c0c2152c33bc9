"""Following pods: observations are gathered for a moment and applied together."""

import asyncio
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import structlog

from reservation_core.domain.model import PodStatus
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.running.observe import UnobservedPodsError, observe

_BATCH = 200
_AGAIN_S = 0.2
_UNAVAILABLE_S = 2.0

_log = structlog.get_logger(__name__)


async def follow(runtime: Runtime, max_starts: int, turnaround: timedelta) -> None:
    """Watch the cluster until it fails or this is cancelled.

    A job is started at most `max_starts` times, and its pods may need `turnaround` to go after its end.
    """
    observed: asyncio.Queue[PodStatus] = asyncio.Queue(maxsize=_BATCH * 5)
    async with asyncio.TaskGroup() as group:
        group.create_task(_gather(runtime, observed))
        group.create_task(_apply(runtime, observed, max_starts, turnaround))


async def _gather(runtime: Runtime, observed: asyncio.Queue[PodStatus]) -> None:
    stream: Any = runtime.cluster.watch()
    async with aclosing(stream):
        async for status in stream:
            await observed.put(status)


async def _apply(runtime: Runtime, observed: asyncio.Queue[PodStatus], max_starts: int, turnaround: timedelta) -> None:
    loop = asyncio.get_running_loop()
    while True:
        batch = [await observed.get()]
        while len(batch) < _BATCH and not observed.empty():
            batch.append(observed.get_nowait())
        try:
            # Another process holds these pods' locks: observe them again in a moment (or at the next resync).
            again = await observe(
                runtime.uow, runtime.cluster, batch, runtime.clock, max_starts, turnaround, runtime.traces
            )
            after = _AGAIN_S
        except UnobservedPodsError as unavailable:
            _log.warning(
                "pods could not be observed; trying again", pods=len(unavailable.statuses), error=str(unavailable)
            )
            again, after = [*unavailable.statuses], _UNAVAILABLE_S
        for status in again:
            loop.call_later(after, _offer, observed, status)


def _offer(observed: asyncio.Queue[PodStatus], status: PodStatus) -> None:
    if not observed.full():
        observed.put_nowait(status)

"""The leader's look at arrays: elements are made as others start, and an array ends soon after its last element."""

import asyncio
from datetime import timedelta

from reservation_core.ports.wakeups import Channel
from reservation_core.runtime.settings.components import ProcessorSettings
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.jobs.arrays import RestingArrays, settle_arrays

REST_S = 0.2
"""After a look that found nothing: each event of the audit log wakes this, and few are of elements."""


async def keep_arrays(runtime: Runtime, settings: ProcessorSettings) -> None:
    """Bring arrays to where their elements are whenever something has started or ended, until cancelled."""
    sweep = timedelta(seconds=settings.sweep_s)
    loop = runtime.loops["arrays"]
    resting = RestingArrays()
    async with runtime.wakeups.subscribe(Channel.EVENTS) as subscription:

        async def once() -> None:
            news = await settle_arrays(runtime.uow, runtime.clock, resting)
            loop.note_success()
            if not news:
                await subscription.wait(sweep)
                await asyncio.sleep(REST_S)

        await loop.repeat(once)

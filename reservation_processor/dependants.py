"""The leader's look at jobs that wait for others: they go on, or end, soon after what they waited for."""

import asyncio
from datetime import timedelta

from reservation_core.ports.wakeups import Channel
from reservation_core.runtime.settings.components import ProcessorSettings
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.jobs.dependencies import settle_dependants
from reservation_core.usecases.repeat_lost_transactions import repeat_lost

REST_S = 0.2
"""Between two looks: each event of the audit log wakes this, and few are of jobs that others wait for."""


async def keep_settling(runtime: Runtime, settings: ProcessorSettings) -> None:
    """Let held jobs go on or end whenever something has started or ended, until cancelled."""
    sweep = timedelta(seconds=settings.sweep_s)
    loop = runtime.loops["dependencies"]
    async with runtime.wakeups.subscribe(Channel.EVENTS) as subscription:

        async def once() -> None:
            news = await repeat_lost(lambda: settle_dependants(runtime.uow, runtime.clock))
            loop.note_success()
            if not news:
                await subscription.wait(sweep)
                await asyncio.sleep(REST_S)

        await loop.repeat(once)

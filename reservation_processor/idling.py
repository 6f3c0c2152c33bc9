"""The leader's look at idle GPUs: jobs are warned, and what stays idle is released, as the policy says."""

import asyncio
from datetime import timedelta

import structlog

from reservation_core.runtime.settings.components import ProcessorSettings
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.gpu_use.watch_idle import IdleWatch
from reservation_core.usecases.repeat_lost_transactions import repeat_lost

EVERY_S = 5.0
RESTS = 20
"""The rest after a look, in multiples of its duration."""
LONGEST_REST_S = 300.0
_log = structlog.get_logger(__name__)


async def watch_idle(runtime: Runtime, settings: ProcessorSettings) -> None:
    """Look until cancelled, for a twentieth of the time where a look takes less than 15 seconds."""
    watch = IdleWatch(runtime.uow, runtime.clock, timedelta(seconds=settings.sample_every_s))
    loop = runtime.loops["idle"]
    clock = asyncio.get_running_loop().time

    async def once() -> None:
        begun = clock()
        report = await repeat_lost(watch.look)
        if report:
            _log.info("idle jobs", warned=report.warned, cleared=report.cleared, released=report.released)
        loop.note_success()
        await asyncio.sleep(max(EVERY_S, min(LONGEST_REST_S, RESTS * (clock() - begun))))

    await loop.repeat(once)

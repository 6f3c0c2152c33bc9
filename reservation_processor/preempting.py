"""The leader's look at running jobs that get a signal, and at preemptible ones whose GPUs others need."""

import structlog

from reservation_core.runtime.settings.components import ProcessorSettings
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.repeat_lost_transactions import repeat_lost
from reservation_core.usecases.running.preempt import preempt

EVERY_S = 0.5
_log = structlog.get_logger(__name__)


async def keep_preempting(runtime: Runtime, settings: ProcessorSettings) -> None:
    """Look twice a second until cancelled."""
    loop = runtime.loops["preemption"]

    async def once() -> None:
        report = await repeat_lost(lambda: preempt(runtime.uow, runtime.clock, settings.turnaround))
        if report:
            _log.info("jobs were signalled or gave their GPUs back", signalled=report.signalled, asked=report.asked)

    await loop.repeat(once, rest_s=EVERY_S)

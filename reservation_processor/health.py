"""The leader's look at the health of GPUs: quarantine for errors that repeat, and reports of slow GPUs."""

import structlog

from reservation_core.runtime.settings.components import ProcessorSettings
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.gpu_use.watch_health import HealthWatch
from reservation_core.usecases.repeat_lost_transactions import repeat_lost

EVERY_S = 10.0
_log = structlog.get_logger(__name__)


async def watch_health(runtime: Runtime, settings: ProcessorSettings) -> None:
    """Look until cancelled."""
    watch = HealthWatch(runtime.uow, runtime.clock, settings.health.rule, slow=settings.health.slow)

    async def once() -> None:
        report = await repeat_lost(watch.look)
        if report:
            _log.warning("GPUs", quarantined=report.quarantined, slow=report.slow, fast_again=report.fast)

    await runtime.loops["gpu_health"].repeat(once, rest_s=EVERY_S)

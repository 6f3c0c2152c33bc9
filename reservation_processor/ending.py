"""The leader's look at the clock: jobs end on time, however seldom the expiry runs."""

import asyncio
from datetime import datetime, timedelta

import structlog

from reservation_core.domain.jobs.repeated_asking import RepeatedEndRequests
from reservation_core.runtime.settings.components import ProcessorSettings
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.repeat_lost_transactions import repeat_lost
from reservation_core.usecases.running.expire_jobs import RepairRules, end_due, repair_stuck

EVERY_S = 1.0
LEAST_S = 0.1
REPAIR_EVERY_S = 5.0

_log = structlog.get_logger(__name__)


async def end_on_time(runtime: Runtime, settings: ProcessorSettings) -> None:
    """End and warn once whatever is due, then rest until the next end, at most a second."""
    report = await repeat_lost(lambda: end_due(runtime.uow, runtime.clock, settings.warn_before_s))
    if report:
        _log.info("jobs ended or warned", ended=report.ended, warned=report.warned)
    await asyncio.sleep(rest_s(report.next_end, runtime.clock.now()))


def rest_s(next_end: datetime | None, now: datetime) -> float:
    """Seconds to rest when the next job ends at `next_end`: a job that was just started may end sooner."""
    left_s = EVERY_S if next_end is None else (next_end - now).total_seconds()
    return min(EVERY_S, max(LEAST_S, left_s))


async def repair(runtime: Runtime, settings: ProcessorSettings, asked: RepeatedEndRequests) -> None:
    """Give up starts that take too long and ask again for ends once, then rest.

    Apart from `end_on_time`: a cluster that does not answer keeps no job from its end.
    """
    patience = timedelta(seconds=settings.ending_patience_s)
    rules = RepairRules(settings.start_allowance, settings.max_starts, patience)
    report = await repeat_lost(lambda: repair_stuck(runtime.uow, runtime.cluster, runtime.clock, rules, asked))
    if report:
        _log.warning("stuck jobs repaired", timed_out=report.timed_out, unknown=report.unknown, resent=report.resent)
    await asyncio.sleep(REPAIR_EVERY_S)

"""Remove old history by the settings; run by the leader, or by the expiry without one."""

import structlog

from reservation_core.runtime.settings.components import KeepingSettings
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.history.retention import RetentionReport, RetentionWalk, remove_old_history

_log = structlog.get_logger(__name__)


async def remove_old_once(runtime: Runtime, settings: KeepingSettings, walk: RetentionWalk) -> RetentionReport:
    """Run once, and log the removals."""
    report = await remove_old_history(runtime.uow, runtime.cluster, settings.retention_rules, walk)
    if report.removed:
        _log.info("removed old history", **{kind.value: count for kind, count in report.removed.items()})
    if report.put_off:
        _log.warning("partitions are in use or not chained yet; they are tried again later", reasons=report.put_off)
    return report

"""One look at the cluster."""

from collections import Counter
from typing import Any

import structlog

from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.nodes.update_inventory import update_inventory

_log = structlog.get_logger(__name__)


async def run_once(runtime: Runtime) -> list[dict[str, Any]]:
    """Bring the inventory up to date; returns what changed."""
    changes = await update_inventory(runtime.uow, runtime.cluster, runtime.clock)
    if changes:
        _log.info("the inventory changed", **Counter(change["kind"] for change in changes))
    for change in changes:
        _log.debug("this changed", **change)
    return changes

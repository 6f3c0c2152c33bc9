"""One look at the cluster."""

from collections import Counter
from typing import Any

import structlog

from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.nodes.update_inventory import update_inventory

_log = structlog.get_logger(__name__)


async def run_once(runtime: Runtime, kept: float | None = 0.0) -> list[dict[str, Any]]:
    """Bring the inventory up to date; returns what changed. `kept` is the part of each node for jobs without GPUs."""
    changes = await update_inventory(runtime.uow, runtime.cluster, runtime.clock, kept)
    if changes:
        _log.info("the inventory changed", **Counter(change["kind"] for change in changes))
    for change in changes:
        _log.debug("this changed", **change)
    return changes

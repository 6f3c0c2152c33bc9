"""Update `nodes` and `gpus` from the cluster's report."""

from typing import Any

from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import Cluster
from reservation_core.ports.wakeups import Channel


async def update_inventory(
    uow_factory: UnitOfWorkFactory, cluster: Cluster, clock: Clock, kept: float | None = 0.0
) -> list[dict[str, Any]]:
    """Write all changes once, and return them. Raises ClusterUnavailableError with nothing written.

    `kept` is the part of each node that is for jobs without GPUs; None: a tenth, and enough for one such job.
    """
    nodes = await cluster.list_nodes()
    listing = await cluster.list_pods(foreign=True)
    async with uow_factory() as uow:
        changes = await uow.inventory.update(nodes, listing.foreign, clock.now(), kept)
        if changes:
            uow.wake(Channel.GPU_JOBS)
    return changes

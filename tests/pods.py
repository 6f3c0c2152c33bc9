"""Pods outlive whoever started them, by design: a test ends those that it has left."""

from datetime import timedelta

from reservation_core.ports.cluster import Cluster
from tests.waiting import eventually


async def end_all_pods(cluster: Cluster) -> None:
    """End and remove every pod; fails when one does not go."""
    for pod in (await cluster.list_pods()).pods:
        await cluster.delete_pod(str(pod.name), timedelta(0))

    async def none_left() -> bool:
        return not (await cluster.list_pods()).pods

    await eventually(none_left)

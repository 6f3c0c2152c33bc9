"""What tests ask of an extender: to know nodes, and to bind."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from pod_scheduling.ports.extender import Binding
from pod_scheduling.ports.pod_binding import BindRefusedError
from pod_scheduling.runtime.extender import RunningExtender
from tests.kubernetes.api_client import JsonObject
from tests.waiting import eventually

PATIENCE_S = 120
HOUR = timedelta(hours=1)

Starter = Callable[..., Awaitable[RunningExtender]]


def binding(pod: JsonObject, node: str) -> Binding:
    metadata = pod["metadata"]
    return Binding(metadata["namespace"], metadata["name"], metadata["uid"], node)


async def knows(running: RunningExtender, pod: JsonObject, *nodes: str) -> None:
    """Wait until these nodes are known."""

    def known() -> bool:
        found = running.extender.filter(pod, nodes)
        return not any("not seen this node" in reason for reason in found.failed.values())

    await eventually(known, PATIENCE_S)


async def bind_all(running: RunningExtender, pods: list[JsonObject], node: str) -> tuple[int, list[str]]:
    """Bind all at once; how many were, and why the others were not."""
    results = await asyncio.gather(*(running.extender.bind(binding(pod, node)) for pod in pods), return_exceptions=True)
    refused = [str(result) for result in results if isinstance(result, BindRefusedError)]
    assert not [result for result in results if result is not None and not isinstance(result, BindRefusedError)]
    return results.count(None), refused

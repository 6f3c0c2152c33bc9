"""Everything that the extender asks an API server for, in one go."""

import pytest

from pod_scheduling.ports.extender import Binding
from pod_scheduling.ports.pod_binding import BindRefusedError
from pod_scheduling.runtime.extender import RunningExtender
from tests.clusters.card_cluster import CardCluster, card_pod, container
from tests.kubernetes.api_client import JsonObject
from tests.waiting import eventually

PATIENCE_S = 60


class NamedQuotas(CardCluster):
    """With the ConfigMap that the role names."""

    @property
    def quota_name(self) -> str:
        return "gpuquota"


async def work(running: RunningExtender, cards: NamedQuotas, *, binds: bool, marks: bool) -> None:
    """All that it asks an API server for, where it binds pods, and where it writes on those that others have bound."""
    await eventually(running.ready, PATIENCE_S)
    node = await cards.add_node(shared=2, memory=8)
    if binds:
        pod = await cards.add(card_pod("pod", container(core=50)))
        await eventually(lambda: running.extender.filter(pod, [node]).fitting == (node,), PATIENCE_S)
        binding = Binding(cards.namespace, "pod", pod["metadata"]["uid"], node)
        await running.extender.bind(binding)
        await running.extender.bind(binding)
        with pytest.raises(BindRefusedError, match="no pod"):  # a pod that was not seen is looked up
            await running.extender.bind(Binding(cards.namespace, "no-such-pod", "no-such-uid", node))
        await eventually(lambda: has_cards(cards, "pod"), PATIENCE_S)
    if marks:
        await cards.add(bound_to(node))
        await eventually(lambda: has_cards(cards, "beside"), PATIENCE_S)
        left = await cards.add(card_pod("left", container(core=50)))
        await eventually(lambda: running.extender.filter(left, [node]).fitting == (node,), PATIENCE_S)
        # A pod that was let through and is on no node after all is looked up before it counts no more.
        await eventually(lambda: running.scheduling.claimed == 0, PATIENCE_S)
    await cards.put_quotas({cards.namespace: {"quota": {}}})
    await cards.add(card_pod("waits", container(core=50)))
    await eventually(lambda: running.scheduling.waiting > 0, PATIENCE_S)
    await cards.put_quotas({})
    await eventually(lambda: running.numbers()["nudged_total"] > 0, PATIENCE_S)
    await cards.client.call("DELETE", f"{cards.path}/waits", {"gracePeriodSeconds": 0})
    await cards.put_quotas("broken")
    await eventually(running.problems, PATIENCE_S)

    async def told() -> bool:
        return any(event["reason"] == "BadQuotas" for event in await cards.quota_events())

    await eventually(told, PATIENCE_S)


async def has_cards(cards: NamedQuotas, name: str) -> bool:
    return "gpu-dev/cards" in ((await cards.read(name))["metadata"].get("annotations") or {})


def bound_to(node: str) -> JsonObject:
    return card_pod("beside", container(core=50), nodeName=node)

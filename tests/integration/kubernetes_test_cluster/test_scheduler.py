"""The scheduler binds pods where they say they belong, and says why where it can't."""

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.kubernetes.api_client import MERGE, ApiClient, JsonObject
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.node.kubelet import Kubelet
from tests.kubernetes.nodes import NodeSpec
from tests.waiting import eventually

_NUMBERS = itertools.count()


@pytest.fixture
def nodes() -> tuple[NodeSpec, ...]:
    taint = {"key": "dedicated", "value": "gpu-dev", "effect": "NoSchedule"}
    return (NodeSpec("node-a"), NodeSpec("node-b"), NodeSpec("node-c", taints=(taint,)))


@pytest.fixture
async def api(api_server: ApiServer, kubelet: Kubelet, scheduler: None) -> AsyncIterator[ApiClient]:
    async with api_server.client() as client:
        yield client


@pytest.fixture
def pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


async def create(api: ApiClient, pods: str, node: str, gpus: int = 0, **spec: Any) -> str:
    """A pod pinned by node affinity; answers its path."""
    name = f"pod-{next(_NUMBERS)}"
    container: JsonObject = {"name": "main", "image": "image", "command": ["sleep", "600"]}
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    body = {"restartPolicy": "Never", "containers": [container], "affinity": {"nodeAffinity": required}, **spec}
    await api.call("POST", pods, {"metadata": {"name": name}, "spec": body})
    return f"{pods}/{name}"


async def runs_on(api: ApiClient, path: str) -> str:
    """The node, once the pod runs."""

    async def node() -> str | None:
        pod = await api.call("GET", path)
        return pod["spec"]["nodeName"] if pod["status"]["phase"] == "Running" else None

    return str(await eventually(node))


async def objection(api: ApiClient, path: str, text: str) -> str:
    """What the scheduler says, once it says that."""

    async def message() -> str | None:
        conditions = (await api.call("GET", path))["status"].get("conditions", [])
        said = [condition["message"] for condition in conditions if condition.get("reason") == "Unschedulable"]
        return said[0] if said and text in said[0] else None

    return str(await eventually(message))


async def refused(api: ApiClient, path: str) -> bool:
    """Whether the scheduler refuses a pod rather than bind it, once it has decided."""

    async def decision() -> str | None:
        pod = await api.call("GET", path)
        return "bound" if "nodeName" in pod["spec"] else "refused" if pod["status"].get("conditions") else None

    return str(await eventually(decision)) == "refused"


async def test_a_pinned_pod_runs_where_it_is_pinned(api: ApiClient, pods: str) -> None:
    assert await runs_on(api, await create(api, pods, "node-b")) == "node-b"


async def test_a_taint_keeps_off_what_does_not_tolerate_it(api: ApiClient, pods: str) -> None:
    path = await create(api, pods, "node-c")
    assert "1 node(s) had untolerated taint(s)" in await objection(api, path, "untolerated")
    tolerates = [{"key": "dedicated", "operator": "Exists"}]
    assert await runs_on(api, await create(api, pods, "node-c", tolerations=tolerates)) == "node-c"


async def test_a_cordon_that_is_lifted_lets_a_pod_in(api: ApiClient, pods: str) -> None:
    await api.call("PATCH", "/api/v1/nodes/node-b", {"spec": {"unschedulable": True}}, content_type=MERGE)
    path = await create(api, pods, "node-b")
    while not await refused(api, path):  # nodes and pods are watched apart: it did not know the cordon yet
        path = await create(api, pods, "node-b")
    await objection(api, path, "unschedulable")
    await api.call("PATCH", "/api/v1/nodes/node-b", {"spec": {"unschedulable": None}}, content_type=MERGE)
    assert await runs_on(api, path) == "node-b"


async def test_cards_are_counted(api: ApiClient, pods: str) -> None:
    first = await create(api, pods, "node-a", gpus=3)
    await runs_on(api, first)
    second = await create(api, pods, "node-a", gpus=2)
    assert "Insufficient nvidia.com/gpu" in await objection(api, second, "Insufficient")
    await api.call("DELETE", first, {"gracePeriodSeconds": 1})
    assert await runs_on(api, second) == "node-a"


async def test_a_node_that_is_not_there_is_waited_for(api: ApiClient, pods: str, kubelet: Kubelet) -> None:
    path = await create(api, pods, "node-z")
    await objection(api, path, "3 node(s) didn't satisfy plugin(s) [NodeAffinity]")
    kubelet.add_node(NodeSpec("node-z"))
    assert await runs_on(api, path) == "node-z"

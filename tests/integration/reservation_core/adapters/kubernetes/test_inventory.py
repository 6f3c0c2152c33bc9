"""Nodes, cards and other people's pods, as an API server has them."""

from typing import Any

from reservation_core.adapters.kubernetes.cluster import KubernetesCluster
from reservation_core.domain.model import PodPhase
from tests.integration.cluster_behaviour import NODE, SpecMaker, reaches
from tests.kubernetes.api_server import ApiServer, empty_namespace, make_namespace
from tests.kubernetes.kubelet import Kubelet
from tests.kubernetes.nodes import NodeSpec
from tests.waiting import eventually

SLICES = "/apis/resource.k8s.io/v1/resourceslices"


def gpu_pod(name: str, node: str, gpus: int, **labels: str) -> dict[str, Any]:
    """A pod of somebody's that asks for cards."""
    container = {
        "name": "other",
        "image": "registry.test/other:1",
        "command": ["sleep", "600"],
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    return {"metadata": {"name": name, "labels": labels}, "spec": {"nodeName": node, "containers": [container]}}


async def test_only_nodes_that_the_selector_names_are_ours(cluster: KubernetesCluster, kubelet: Kubelet) -> None:
    kubelet.add_node(NodeSpec("node-z", gpus=8, labels={}))
    kubelet.add_node(NodeSpec("node-b", gpus=2))
    nodes = {node.name: len(node.gpus) for node in await cluster.list_nodes()}
    assert nodes == {NODE: 4, "node-b": 2}


async def test_uuids_come_from_resource_slices(cluster: KubernetesCluster, api_server: ApiServer) -> None:
    assert [gpu.uuid for gpu in (await cluster.list_nodes())[0].gpus] == [None] * 4
    devices = [
        {
            "name": f"gpu-{index}",
            "attributes": {
                "uuid": {"string": f"GPU-{index}aaaa"},
                "index": {"int": index},
                "type": {"string": "gpu"},
                "productName": {"string": "NVIDIA H100 80GB HBM3"},
            },
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for index in range(4)
    ]
    body = {
        "metadata": {"name": f"{NODE}-gpu.nvidia.com"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": NODE,
            "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }
    async with api_server.client() as client:
        await client.call("POST", SLICES, body)
        try:
            gpus = (await cluster.list_nodes())[0].gpus
        finally:
            await client.call("DELETE", f"{SLICES}/{body['metadata']['name']}")  # type: ignore[index]
    assert [gpu.uuid for gpu in gpus] == [f"GPU-{index}aaaa" for index in range(4)]


async def test_other_peoples_pods_with_our_cards_are_seen_wherever_they_are(
    cluster: KubernetesCluster, api_server: ApiServer, namespace: str, make_spec: SpecMaker
) -> None:
    ours, elsewhere = make_spec("sleep", "600"), f"{namespace}-other"
    await cluster.create_pod(ours)
    await eventually(reaches(cluster, ours, PodPhase.RUNNING))
    await make_namespace(api_server, elsewhere)
    async with api_server.client() as client:
        labels = {
            "gpu-dev/managed": "true",
            "gpu-dev/reservation": ours.name.reservation_id,
            "gpu-dev/attempt": "1",
            "gpu-dev/rank": "0",
        }
        path = f"/api/v1/namespaces/{elsewhere}/pods"
        await client.call("POST", path, gpu_pod("training", NODE, 2))
        await client.call("POST", path, gpu_pod(str(ours.name), NODE, 1, **labels))
        await client.call("POST", path, gpu_pod("not-on-ours", "node-of-others", 1))
        await client.call("POST", f"/api/v1/namespaces/{namespace}/pods", gpu_pod("beside-ours", NODE, 1))
    listing = await cluster.list_pods(foreign=True)
    await empty_namespace(api_server, elsewhere)
    assert [pod.name for pod in listing.pods] == [ours.name]
    assert sorted((pod.description, pod.node, pod.gpu_count) for pod in listing.foreign) == sorted(
        [
            (f"{elsewhere}/training", NODE, 2),
            (f"{elsewhere}/{ours.name}", NODE, 1),
            (f"{namespace}/beside-ours", NODE, 1),
        ]
    )
    assert (await cluster.list_pods()).foreign == ()

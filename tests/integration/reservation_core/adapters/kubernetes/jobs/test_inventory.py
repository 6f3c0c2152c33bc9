"""Nodes, cards and other people's pods, as an API server has them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from reservation_core.adapters.kubernetes.jobs.cluster import KubernetesCluster
from reservation_core.domain.model import PodPhase
from tests.integration.cluster_behaviour import NODE, SpecMaker, reaches
from tests.kubernetes.api_client import MERGE
from tests.kubernetes.api_server import ApiServer, empty_namespace, make_namespace
from tests.kubernetes.node.kubelet import Kubelet
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


@asynccontextmanager
async def slices_of(api_server: ApiServer) -> AsyncIterator[None]:
    """A DRA driver that publishes the four cards of the node."""
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
    body: dict[str, Any] = {
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
            yield
        finally:
            await client.call("DELETE", f"{SLICES}/{body['metadata']['name']}")


async def test_uuids_come_from_resource_slices(cluster: KubernetesCluster, api_server: ApiServer) -> None:
    assert [gpu.uuid for gpu in (await cluster.list_nodes())[0].gpus] == [None] * 4
    async with slices_of(api_server):
        gpus = (await cluster.list_nodes())[0].gpus
    assert [gpu.uuid for gpu in gpus] == [f"GPU-{index}aaaa" for index in range(4)]


async def test_claims_say_which_cards_others_have(
    cluster: KubernetesCluster, api_server: ApiServer, namespace: str
) -> None:
    elsewhere = f"{namespace}-claims"
    await make_namespace(api_server, elsewhere)
    claims = f"/apis/resource.k8s.io/v1/namespaces/{elsewhere}/resourceclaims"

    async def foreign() -> list[tuple[str, int, tuple[int, ...] | None]]:
        found = (await cluster.list_pods(foreign=True)).foreign
        mine = [pod for pod in found if pod.description.startswith(elsewhere)]
        return [(pod.description.rpartition("/")[2], pod.gpu_count, pod.gpu_indices) for pod in mine]

    async with api_server.client() as client:

        async def claim(name: str, device_class: str, driver: str | None = None, device: str = "") -> None:
            requests = [{"name": "it", "exactly": {"deviceClassName": device_class}}]
            body = {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}}
            await client.call("POST", claims, body)
            if driver is not None:
                result = {"request": "it", "driver": driver, "pool": NODE, "device": device}
                status = {"status": {"allocation": {"devices": {"results": [result]}}}}
                await client.call("PATCH", f"{claims}/{name}/status", status, content_type=MERGE)

        async def pod(name: str, *claimed: str) -> None:
            body = gpu_pod(name, NODE, 1)
            body["spec"]["resourceClaims"] = [
                {"name": claim_name, "resourceClaimName": claim_name} for claim_name in claimed
            ]
            del body["spec"]["containers"][0]["resources"]
            await client.call("POST", f"/api/v1/namespaces/{elsewhere}/pods", body)

        await claim("nic", "rdma.example.org", "dra.example.org", "eth1")
        await pod("networked", "nic")
        assert await foreign() == []
        await claim("card", "big-cards.example.org", "gpu.nvidia.com", "gpu-2")
        await pod("computing", "card", "nic")
        assert await foreign() == [("computing", 1, None)]
        async with slices_of(api_server):
            assert await foreign() == [("computing", 1, (2,))]
            await claim("wished", "gpu.nvidia.com")
            await pod("waiting", "wished")
            await pod("nobody-knows", "not-there")
            assert sorted(await foreign()) == [("computing", 1, (2,)), ("nobody-knows", 1, None), ("waiting", 1, None)]
    await empty_namespace(api_server, elsewhere)


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

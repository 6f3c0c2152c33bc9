"""What the scheduler writes on pods: on the one that is meant, and on no other of its name."""

import pytest

from pod_scheduling.adapters.kubernetes.map_cluster import KubernetesMapCluster
from pod_scheduling.adapters.kubernetes.map_sights import SightRules
from pod_scheduling.ports.pod_binding import PodChangedError, PodRef
from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.adapters.kubernetes.other_objects.event_writer import EventWriter

CLOCK = SystemClock()


@pytest.fixture
def cluster(transport: Transport) -> KubernetesMapCluster:
    return KubernetesMapCluster(transport, SightRules(), EventWriter(transport, CLOCK, "c", "i"), CLOCK)


async def test_why_a_pod_waits_is_told_to_that_pod_alone(
    cluster: KubernetesMapCluster, transport: Transport, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    container = {"name": "main", "image": "registry.test/workload:1"}
    body = {"metadata": {"name": "pod-0"}, "spec": {"schedulerName": "gpu-scheduler", "containers": [container]}}
    uid = (await transport.request("POST", path, body=body))["metadata"]["uid"]

    async def told() -> list[str]:
        conditions = (await transport.request("GET", f"{path}/pod-0"))["status"].get("conditions") or []
        return [condition["message"] for condition in conditions if condition["type"] == "PodScheduled"]

    await cluster.report_waiting(PodRef(namespace, "pod-0", "another-uid"), "NoSuchNode", "There is none.")
    await cluster.report_waiting(PodRef(namespace, "gone-0", "another-uid"), "NoSuchNode", "There is none.")
    assert await told() == []
    await cluster.report_waiting(PodRef(namespace, "pod-0", uid), "NoSuchNode", "There is none.")
    assert await told() == ["NoSuchNode: There is none."]


async def test_a_pod_that_was_bound_meanwhile_is_not_told_that_it_waits(
    cluster: KubernetesMapCluster, transport: Transport, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    container = {"name": "main", "image": "registry.test/workload:1"}
    body = {"metadata": {"name": "pod-0"}, "spec": {"schedulerName": "gpu-scheduler", "containers": [container]}}
    made = (await transport.request("POST", path, body=body))["metadata"]
    seen = PodRef(namespace, "pod-0", made["uid"], made["resourceVersion"])
    await cluster.bind(seen, "node1")
    with pytest.raises(PodChangedError):
        await cluster.report_waiting(seen, "NoSuchNode", "There is none.")
    now = await transport.request("GET", f"{path}/pod-0")
    assert now["spec"]["nodeName"] == "node1"
    conditions = now["status"].get("conditions") or []
    assert [
        condition for condition in conditions if condition["type"] == "PodScheduled" and condition["status"] == "False"
    ] == []

"""Both guides' pods from end to end, on a real API server: its own controller makes them, the webhook writes, the
scheduler binds, and they say of themselves where they are and what they see.

`SCHEDULING_MAP_TRANSCRIPT` names a file for what kubectl shows then.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from reservation_core.adapters.certificates.pairs import Pair
from tests.chart.plain_manifests import FOLDER
from tests.clusters.webhook_registration import registered
from tests.integration.gpu_scheduler.conftest import Starter, running
from tests.kubernetes.api_client import ApiClient, JsonObject
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.node.kubelet import Kubelet
from tests.kubernetes.nodes import NodeSpec
from tests.kubernetes.real.kube_controller_manager import kube_controller_manager_of, started_controllers
from tests.programs.webhook_process import WebhookProcess, new_pair, webhook_process, write_pair
from tests.read_yaml import read_all_yaml
from tests.waiting import eventually

NODES = {f"gpu-cluster-worker{number if number > 1 else ''}": f"node{number}" for number in range(1, 5)}
SEEN = [("node1", "0,1"), ("node2", "2"), ("node3", "0,1,2"), ("node4", "3"), ("node4", "3")]
GUIDE = "0=node1:0,1\n1=node2:2\n2=node3:0,1,2\n"


@pytest.fixture(autouse=True)
def _only_a_real_server_asks(api_server: ApiServer) -> None:
    if not api_server.real:
        pytest.skip("the emulator calls no webhooks; set KUBEBUILDER_ASSETS")


@pytest.fixture
def nodes() -> tuple[NodeSpec, ...]:
    """Four workers, named as the guides name them."""
    return tuple(NodeSpec(name, labels={"gpu-node-name": label}) for name, label in NODES.items())


@pytest.fixture
def kubelet(
    api_server: ApiServer, namespace: str, nodes: tuple[NodeSpec, ...], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Kubelet]:
    """Its containers find the same Python as the tests."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    with Kubelet(api_server, nodes, namespace=namespace) as kubelet:
        yield kubelet


@pytest.fixture
def controllers(api_server: ApiServer) -> Iterator[bool]:
    """Whether a real StatefulSet controller is at hand; it works then."""
    program = kube_controller_manager_of(api_server)
    if program is None:
        yield False
        return
    with started_controllers(api_server, program, "statefulset-controller"):
        yield True


@pytest.fixture
async def start(api_server: ApiServer, namespace: str) -> AsyncIterator[Starter]:
    async with running(api_server.kubeconfig, namespace) as starter:
        yield starter


@pytest.fixture
def pair() -> Pair:
    return new_pair()


@pytest.fixture
def webhook(tmp_path: Path, pair: Pair) -> Iterator[WebhookProcess]:
    write_pair(pair, tmp_path)
    with webhook_process(tmp_path) as webhook:
        yield webhook


@pytest.fixture
async def client(
    api_server: ApiServer, namespace: str, webhook: WebhookProcess, pair: Pair, kubelet: Kubelet, start: Starter
) -> AsyncIterator[ApiClient]:
    """An administrator's client, with everything up."""
    await start(forked=False)
    async with registered(api_server, namespace, namespace, webhook.url, [pair]), api_server.client() as client:
        yield client


def check_pods(stateful_set: JsonObject) -> list[JsonObject]:
    """What the StatefulSet controller would make."""
    template = stateful_set["spec"]["template"]
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": stateful_set["metadata"]["name"]}
    owner |= {"uid": "00000000-0000-0000-0000-000000000001", "controller": True}
    return [
        {
            "metadata": {
                **template["metadata"],
                "name": f"{owner['name']}-{index}",
                "labels": {**template["metadata"]["labels"], "apps.kubernetes.io/pod-index": str(index)},
                "ownerReferences": [owner],
            },
            "spec": template["spec"],
        }
        for index in range(stateful_set["spec"]["replicas"])
    ]


async def test_the_check_service_says_what_its_map_says(
    client: ApiClient, namespace: str, controllers: bool, api_server: ApiServer
) -> None:
    documents = list(read_all_yaml((FOLDER / "gpu-scheduler-check.yaml").read_text()))
    (stateful_set,) = [document for document in documents if document["kind"] == "StatefulSet"]
    stateful_set["metadata"]["namespace"] = namespace
    pods = f"/api/v1/namespaces/{namespace}/pods"
    if controllers:
        await client.call("POST", f"/apis/apps/v1/namespaces/{namespace}/statefulsets", stateful_set)
    else:
        for pod in check_pods(stateful_set):
            await client.call("POST", pods, pod)
    workers = {label: name for name, label in NODES.items()}
    for index, (node, devices) in enumerate(SEEN):
        name = f"gpu-scheduler-check-{index}"
        said = f"Node Name: {workers[node]}\nCUDA_VISIBLE_DEVICES: {devices}\n---\n"
        await eventually(lambda name=name, said=said: says(client, pods, name, said), timeout=90)
        assert (await client.call("GET", f"{pods}/{name}"))["spec"]["nodeName"] == workers[node]
    await transcribe(api_server, client, namespace)


async def test_the_setup_guides_three_pods(client: ApiClient, namespace: str, webhook: WebhookProcess) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    workers = {label: name for name, label in NODES.items()}
    for index, text in enumerate(["0=node1:0,1", GUIDE, GUIDE]):
        command = ["sh", "-c", "echo 'CUDA_VISIBLE_DEVICES='$CUDA_VISIBLE_DEVICES; exec sleep 300"]
        container = {"name": "test", "image": "busybox", "command": command}
        body = {
            "metadata": {"name": f"webhook-test-{index}", "annotations": {"gpu-scheduling-map": text}},
            "spec": {"schedulerName": "gpu-scheduler", "containers": [container]},
        }
        await client.call("POST", pods, body)
    for index, (node, devices) in enumerate(SEEN[:3]):
        name, said = f"webhook-test-{index}", f"CUDA_VISIBLE_DEVICES={devices}\n"
        await eventually(lambda name=name, said=said: says(client, pods, name, said), timeout=90)
        assert (await client.call("GET", f"{pods}/{name}"))["spec"]["nodeName"] == workers[node]
        assert f"Injecting CUDA_VISIBLE_DEVICES={devices} for pod {name} (index {index})" in webhook.text()


async def says(client: ApiClient, pods: str, name: str, text: str) -> bool:
    """Whether a pod runs and has printed that."""
    found = await client.call("GET", f"{pods}/{name}") if await exists(client, pods, name) else {}
    if found.get("status", {}).get("phase") != "Running":
        return False
    return text in await client.text(f"{pods}/{name}/log")


async def exists(client: ApiClient, pods: str, name: str) -> bool:
    listed = await client.call("GET", pods, fieldSelector=f"metadata.name={name}")
    return bool(listed["items"])


async def transcribe(server: ApiServer, client: ApiClient, namespace: str) -> None:
    """What kubectl shows, and what the pods on node3 and node4 say, into the file that was asked for."""
    wanted = os.environ.get("SCHEDULING_MAP_TRANSCRIPT")
    if not wanted:
        return
    kubectl = [str(Path(os.environ["KUBEBUILDER_ASSETS"]) / "kubectl"), f"--kubeconfig={server.kubeconfig}"]
    command = [*kubectl, "get", "pod", "-owide", "-A"]
    shown = (await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, text=True)).stdout
    lines = ["$ kubectl get pod -owide -A", shown.replace(namespace, "default".ljust(len(namespace)))]
    for index in (2, 3, 4):
        name = f"gpu-scheduler-check-{index}"
        said = await client.text(f"/api/v1/namespaces/{namespace}/pods/{name}/log", tailLines="3")
        lines += [f"$ kubectl logs --tail=3 {name}", said]
    await asyncio.to_thread(Path(wanted).write_text, "\n".join(lines))

"""The use of GPUs of a Kubernetes cluster: from a node agent's driver into the database."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from reservation_core.adapters.kubernetes.api_server.retries import MERGE_PATCH
from reservation_core.adapters.kubernetes.nodes.agent_samples import AgentSamples
from reservation_core.runtime.pods.node_agent import run_node_agent
from reservation_core.runtime.processes.companions import beside
from reservation_core.runtime.settings.components import ClusterKind, NodeAgentSettings, ProcessorSettings
from reservation_core.runtime.settings.kubernetes import KubernetesSettings
from reservation_core.runtime.wiring import Runtime, open_runtime
from reservation_core.usecases.nodes.update_inventory import update_inventory
from reservation_processor.sampling import keep_sampling
from tests.database.sql import sql
from tests.kubernetes.api_server import ApiServer, empty_namespace, make_namespace
from tests.kubernetes.node.kubelet import Kubelet
from tests.kubernetes.nodes import OUR_NODES, NodeSpec
from tests.programs.ports import own_port
from tests.waiting import eventually

HOST = "127.0.0.2"
READY = {"type": "Ready", "status": "True"}


@pytest.fixture
def nodes() -> tuple[NodeSpec, ...]:
    return (NodeSpec("sampled", gpus=2),)


@pytest.fixture
async def system(api_server: ApiServer) -> AsyncIterator[str]:
    """The namespace of the processor and the agents, whose pods the test's kubelet does not run."""
    name = f"system-{uuid.uuid4().hex[:8]}"
    await make_namespace(api_server, name)
    yield name
    await empty_namespace(api_server, name)


async def add_agents_pod(server: ApiServer, namespace: str) -> None:
    """The pod of the node's agent, as the DaemonSet and a kubelet leave it."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    metadata = {"name": "node-agent-x", "labels": {"app.kubernetes.io/name": "node-agent"}}
    spec = {"nodeName": "sampled", "containers": [{"name": "agent", "image": "registry.test/agent:1"}]}
    async with server.client() as client:
        await client.call("POST", path, {"metadata": metadata, "spec": spec})
        status = {"phase": "Running", "podIP": HOST, "podIPs": [{"ip": HOST}], "conditions": [READY]}
        await client.call("PATCH", f"{path}/node-agent-x/status", {"status": status}, content_type=MERGE_PATCH)


async def asked(runtime: Runtime, statement: str) -> set[tuple[object, ...]]:
    async with runtime.uow() as uow:
        return {tuple(row) for row in await sql(uow, statement)}


async def test_what_an_agent_tells_is_stored_for_its_nodes_gpus(
    api_server: ApiServer,
    system: str,
    kubelet: Kubelet,
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("POD_NAMESPACE", system)
    monkeypatch.setenv("NODE_NAME", "sampled")
    recording = tmp_path / "use.csv"
    recording.write_text("at_s,gpu,utilisation\n0,1,0.25\n1,1,0.25\n")
    port = own_port()
    selector = ",".join(f"{key}={value}" for key, value in OUR_NODES.items())
    kubernetes = KubernetesSettings(kubeconfig=api_server.kubeconfig, node_selector=selector, agent_port=port)
    agent = NodeAgentSettings(  # type: ignore[call-arg]  # the node's name comes from the environment
        home=tmp_path / "agent",
        kubernetes=kubernetes,
        local_gpus="h100:2",
        local_use=recording,
        samples_listen=f"{HOST}:{port}",
    )
    settings = ProcessorSettings(
        home=tmp_path / "home", cluster=ClusterKind.KUBERNETES, kubernetes=kubernetes, sample_every_s=1
    )
    async with (
        beside(run_node_agent(agent, once=False), name="agent"),
        open_runtime(settings, database_url) as runtime,
    ):
        assert isinstance(runtime.gpu_sampler, AgentSamples)
        await add_agents_pod(api_server, system)

        async def cards_are_known() -> bool:
            await update_inventory(runtime.uow, runtime.cluster, runtime.clock)
            return bool(await asked(runtime, "SELECT uuid FROM gpus WHERE uuid = 'GPU-sim-sampled-1'"))

        await eventually(cards_are_known)
        async with beside(keep_sampling(runtime, settings), name="sampling"):
            stored = "SELECT g.index, s.utilisation FROM gpu_samples s JOIN gpus g ON g.id = s.gpu_id"
            found = await eventually(lambda: asked(runtime, stored))
    assert found == {(1, 250)}

"""The node agent against an API server: it writes what differs, corrects others, and says what is missing."""

import asyncio
import os
import shutil
import sys
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from reservation_core.adapters.kubernetes.api_server.retries import MERGE_PATCH, Transport
from reservation_core.adapters.kubernetes.nodes.node_agent import NodeAgent, NodeAgentError
from reservation_core.adapters.kubernetes.nodes.node_reports import NodeRules, read_nodes
from reservation_core.adapters.kubernetes.pods.gpu_attaching import GpuAttach
from reservation_core.adapters.local.inventory import LocalInventory
from reservation_core.domain.cards.link_words import read_links
from reservation_core.domain.cards.node_reports import NodeReport
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.runtime.pods.node_agent import keep_node_annotations
from tests.kubernetes.api_client import JsonObject
from tests.kubernetes.api_server import ApiServer
from tests.nvml.driver import build, in_place
from tests.waiting import eventually

GPUS = "gpu-dev/gpus"
LINKS = "gpu-dev/gpu-links"
JOINED = "X NV4;NV4 X"


@pytest.fixture
async def node(api_server: ApiServer) -> AsyncIterator[str]:
    """A node of the cluster without any annotation."""
    name = f"node-{uuid.uuid4().hex[:8]}"
    async with api_server.client() as client:
        await client.call("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": {"a": "b"}}})
        yield name
        await client.try_call("DELETE", f"/api/v1/nodes/{name}", {})


async def read(transport: Transport, node: str) -> JsonObject:
    return await transport.request("GET", f"/api/v1/nodes/{node}")


def agent(transport: Transport, node: str, gpus: str | None = "h100:2") -> NodeAgent:
    return NodeAgent(transport, node, LocalInventory(gpus, node))


async def test_what_it_writes_is_what_nodes_are_read_from(transport: Transport, node: str) -> None:
    assert await agent(transport, node).update()
    thing = await read(transport, node)
    (report,) = read_nodes([thing], [], NodeRules(attach=GpuAttach.UUID))
    assert [(gpu.index, gpu.gpu_type, gpu.uuid) for gpu in report.gpus] == [
        (0, "h100", f"GPU-sim-{node}-0"),
        (1, "h100", f"GPU-sim-{node}-1"),
    ]
    assert thing["metadata"]["labels"]["a"] == "b"


@pytest.mark.skipif(shutil.which("cc") is None, reason="a C compiler builds the library in NVML's place")
async def test_instances_are_gpus_of_a_type_of_their_own(
    transport: Transport, node: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_place(build(tmp_path, "-DMIG"), monkeypatch) as driver:
        driver.put("mig_mode", 0, 1)
        assert await agent(transport, node, None).update()
    (report,) = read_nodes([await read(transport, node)], [], NodeRules(attach=GpuAttach.UUID))
    assert [(gpu.index, gpu.gpu_type, gpu.uuid) for gpu in report.gpus] == [
        (1, "h100", "GPU-test-1"),
        (64, "h100-mig-1g.10gb", "MIG-test-0-0"),
        (66, "h100-mig-1g.10gb", "MIG-test-0-2"),
    ]


async def test_what_is_right_is_not_written_again(transport: Transport, node: str) -> None:
    assert await agent(transport, node).update()
    version = (await read(transport, node))["metadata"]["resourceVersion"]
    assert not await agent(transport, node).update()
    assert (await read(transport, node))["metadata"]["resourceVersion"] == version
    assert await agent(transport, node, "h100:1").update()


async def test_in_its_loop_it_corrects_what_others_write(transport: Transport, node: str) -> None:
    stop = asyncio.Event()
    running = asyncio.create_task(keep_node_annotations(agent(transport, node), stop, 0.02))

    async def written() -> str | None:
        found = (await read(transport, node))["metadata"].get("annotations", {}).get(GPUS)
        return found if isinstance(found, str) and "GPU-sim" in found else None

    first = await eventually(written)
    for wrong in ("nonsense", None):
        body = {"metadata": {"annotations": {GPUS: wrong}}}
        await transport.request("PATCH", f"/api/v1/nodes/{node}", body=body, content_type=MERGE_PATCH)
        assert await eventually(written) == first
    stop.set()
    await running


class Joined(LocalInventory):
    """Simulated cards, of which the driver says how they are joined, or does not."""

    joined = True

    def nodes(self) -> list[NodeReport]:
        """The simulated nodes, with links."""
        links = read_links(JOINED) if self.joined else None
        return [replace(report, links=links) for report in super().nodes()]


async def test_how_cards_are_joined_is_written_as_it_is_read(transport: Transport, node: str) -> None:
    inventory = Joined("h100:2", node)
    its_agent = NodeAgent(transport, node, inventory)
    assert await its_agent.update()
    assert not await its_agent.update()
    thing = await read(transport, node)
    assert thing["metadata"]["annotations"][LINKS] == JOINED
    (report,) = read_nodes([thing], [], NodeRules())
    assert report.links == read_links(JOINED)
    body = {"metadata": {"annotations": {LINKS: "0 1"}}}
    await transport.request("PATCH", f"/api/v1/nodes/{node}", body=body, content_type=MERGE_PATCH)
    assert await its_agent.update()
    assert (await read(transport, node))["metadata"]["annotations"][LINKS] == JOINED


async def test_what_an_administrator_says_of_links_stays_where_the_driver_says_nothing(
    transport: Transport, node: str
) -> None:
    body = {"metadata": {"annotations": {LINKS: "0-1"}}}
    await transport.request("PATCH", f"/api/v1/nodes/{node}", body=body, content_type=MERGE_PATCH)
    assert await agent(transport, node).update()
    assert (await read(transport, node))["metadata"]["annotations"][LINKS] == "0-1"


async def test_a_node_that_vanishes_is_waited_for_in_the_loop(
    api_server: ApiServer, transport: Transport, node: str
) -> None:
    stop = asyncio.Event()
    with capture_logs() as lines:
        running = asyncio.create_task(keep_node_annotations(agent(transport, node), stop, 0.02))
        await eventually(lambda: [line for line in lines if "wrote the node" in line["event"]])
        async with api_server.client() as client:
            await client.call("DELETE", f"/api/v1/nodes/{node}", {})
        await eventually(lambda: [line for line in lines if "has no node" in line.get("error", "")])
        assert not running.done()
        stop.set()
        await running


async def test_what_is_missing_is_said_at_the_first_look(transport: Transport, node: str) -> None:
    with pytest.raises(NodeAgentError, match="has no node no-such-node"):
        await keep_node_annotations(agent(transport, "no-such-node"), asyncio.Event(), 1)
    with pytest.raises(NodeAgentError, match="NODE_NAME"):
        NodeAgent(transport, "../pods", LocalInventory("h100:2", node))


async def test_without_a_driver_it_says_where_to_run(
    transport: Transport, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pynvml

    def no_library() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", no_library)
    with pytest.raises(NodeAgentError, match="on GPU nodes only"):
        await agent(transport, node, gpus=None).update()
    assert GPUS not in (await read(transport, node))["metadata"].get("annotations", {})


async def test_a_server_that_does_not_answer_is_no_news_of_the_node(transport: Transport, node: str) -> None:
    await transport.close()
    with pytest.raises(ClusterUnavailableError):
        await agent(transport, node).update()


async def test_as_a_program(api_server: ApiServer, transport: Transport, node: str, tmp_path: Path) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "NODE_NAME": node,
        "GPU_DEV_LOCAL_GPUS": "t4:1",
        "GPU_DEV_KUBERNETES__KUBECONFIG": str(api_server.kubeconfig),
    }
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "availability_updater", "--node-agent", "--once", env=environment
    )
    assert await program.wait() == 0
    assert '"product":"t4"' in (await read(transport, node))["metadata"]["annotations"][GPUS]

"""Fake GPUs: what the script writes with kubectl is what nodes are read from."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.kubernetes.api_server.credentials import Credentials
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.adapters.kubernetes.jobs.cluster import ClusterRules, KubernetesCluster
from reservation_core.adapters.kubernetes.jobs.foreign_pods import ForeignRules
from reservation_core.adapters.kubernetes.nodes.node_reports import LOGICAL_NAME_LABEL, NodeRules
from reservation_core.adapters.kubernetes.pods.built_pods import PodRules
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.manifests import DEPLOY
from tests.kubernetes.node.kubelet import Kubelet
from tests.kubernetes.nodes import NodeSpec

SCRIPT = DEPLOY / "kind" / "fake-gpus.sh"
WORKERS = {"gpu-dev-worker": "node1", "gpu-dev-worker2": "node2"}


async def fake_gpus(kubeconfig: Path, *arguments: str) -> tuple[int, str]:
    """Run the script; how it ended, and what it said of it. kubectl keeps what it learns beside the kubeconfig."""
    home = str(kubeconfig.parent)
    program = await asyncio.create_subprocess_exec(
        "sh",
        str(SCRIPT),
        *arguments,
        env={"PATH": os.environ["PATH"], "HOME": home, "KUBECONFIG": str(kubeconfig)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await program.communicate()
    return program.returncode or 0, said.decode()


def needs_kubectl_and_a_real_server(server: ApiServer) -> None:
    if not server.real or shutil.which("kubectl") is None:
        pytest.skip("needs kubectl, and KUBEBUILDER_ASSETS with a kube-apiserver: kubectl asks more than we emulate")


async def test_named_nodes_get_gpus_and_others_do_not(api_server: ApiServer) -> None:
    needs_kubectl_and_a_real_server(api_server)
    specs = [NodeSpec(name, gpus=0, labels={LOGICAL_NAME_LABEL: logical}) for name, logical in WORKERS.items()]
    with Kubelet(api_server, [*specs, NodeSpec("gpu-dev-control-plane", gpus=0, labels={})], namespace="default"):
        code, said = await fake_gpus(api_server.kubeconfig)
        assert (code, said) == (0, "")
        transport = Transport(Credentials(api_server.kubeconfig, None, {}), 10)
        rules = ClusterRules(PodRules("default"), NodeRules(), ForeignRules("default"))
        cluster = KubernetesCluster(transport, rules, SystemClock())
        nodes = {node.name: node for node in await cluster.list_nodes()}
        assert {name: nodes[name].logical_name for name in WORKERS} == WORKERS
        for name in WORKERS:
            assert [gpu.gpu_type for gpu in nodes[name].gpus] == ["h100"] * 4
            assert nodes[name].gpus[0].memory_bytes == 81_559 * 2**20
        assert nodes["gpu-dev-control-plane"].gpus == ()
        assert await fake_gpus(api_server.kubeconfig, "2", "Tesla-T4", "15360") == (0, "")
        nodes = {node.name: node for node in await cluster.list_nodes()}
        assert [gpu.gpu_type for gpu in nodes["gpu-dev-worker"].gpus] == ["t4"] * 2
        await cluster.close()


async def test_a_cluster_without_named_nodes_is_not_touched(api_server: ApiServer) -> None:
    needs_kubectl_and_a_real_server(api_server)
    code, said = await fake_gpus(api_server.kubeconfig)
    assert code == 1
    assert "no node has the label gpu-node-name" in said


async def test_a_count_is_a_number(tmp_path: Path) -> None:
    code, said = await fake_gpus(tmp_path / "none", "four")
    assert code == 2
    assert "COUNT is a whole number" in said

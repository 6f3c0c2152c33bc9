"""A Kubernetes cluster over a real HTTP API server, with a test kubelet that really runs what pods say."""

import shutil
import subprocess
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.kubernetes.api_server.credentials import Credentials
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.adapters.kubernetes.jobs.cluster import ClusterRules, KubernetesCluster
from reservation_core.adapters.kubernetes.jobs.foreign_pods import ForeignRules
from reservation_core.adapters.kubernetes.nodes.node_reports import NodeRules
from reservation_core.adapters.kubernetes.pods.built_pods import PodRules
from reservation_core.adapters.kubernetes.pods.gpu_attaching import GpuPin
from reservation_core.domain.model import PodName, PodSpec, PodWorkload
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.node.kubelet import Kubelet

pytest.register_assert_rewrite("tests.integration.cluster_behaviour")

from tests.integration.cluster_behaviour import NODE, SpecMaker  # noqa: E402

_NUMBERS = count()
NODE_SELECTOR = "gpu-dev/node=true"


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that is its own authority, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("a certificate has to be made: install openssl")
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "server.crt", folder / "server.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "keyUsage=critical,digitalSignature,keyCertSign"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    return certificate, key


@pytest.fixture
async def runtime_class(api_server: ApiServer) -> None:
    """What pods that get their cards by variables run under, as a GPU operator would have installed it."""
    async with api_server.client() as client:
        body = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
        await client.try_call("POST", "/apis/node.k8s.io/v1/runtimeclasses", body)


@pytest.fixture
def rules(namespace: str) -> ClusterRules:
    """Pods go to their node by name, as no scheduler is about; their second belt is tight."""
    pods = PodRules(
        namespace, pin=GpuPin.NODE_NAME, default_image="registry.test/workload:1", extension_room=timedelta(0)
    )
    return ClusterRules(pods, NodeRules(), ForeignRules(namespace), node_selector=NODE_SELECTOR, creates_per_s=0)


def transport_to(kubeconfig: Path, timeout_s: float = 10) -> Transport:
    """The way that a kubeconfig shows."""
    return Transport(Credentials(kubeconfig, None, {}), timeout_s)


@pytest.fixture
async def transport(api_server: ApiServer) -> AsyncIterator[Transport]:
    """As the administrator, without anything between."""
    transport = transport_to(api_server.kubeconfig)
    yield transport
    await transport.close()


@pytest.fixture
async def cluster(
    transport: Transport, rules: ClusterRules, kubelet: Kubelet, runtime_class: None
) -> AsyncIterator[KubernetesCluster]:
    """The cluster with a kubelet behind it."""
    cluster = KubernetesCluster(transport, rules, SystemClock())
    yield cluster
    await cluster.close()


@pytest.fixture
def make_spec() -> SpecMaker:
    def make(
        *command: str,
        env: tuple[tuple[str, str], ...] = (),
        deadline: datetime | None = None,
        grace: timedelta = timedelta(seconds=5),
        node: str = NODE,
        name: PodName | None = None,
        pods: int = 1,
    ) -> PodSpec:
        now = datetime.now(UTC)
        name = name or PodName(f"job-t{next(_NUMBERS)}x", 1, 0)
        visible = dict(env).get("CUDA_VISIBLE_DEVICES", "0")
        gpu_indices = tuple(int(index) for index in visible.split(","))
        return PodSpec(
            name=name,
            user="ada",
            node=node,
            gpu_indices=gpu_indices,
            gpu_uuids=(None,) * len(gpu_indices),
            workload=PodWorkload(command=command),
            env=(*env, ("GPU_DEV_JOB_ID", name.reservation_id)),
            deadline=deadline or now + timedelta(hours=1),
            grace=grace,
            user_id=7,
            pods=pods,
            starts_at=now,
            ends_at=now + timedelta(hours=1),
        )

    return make

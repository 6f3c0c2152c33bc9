"""Fixtures of the Kubernetes test cluster; `tests/conftest.py` makes them known to all tests.

Each imports what it needs: sessions without a cluster load nothing of it.
"""

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.kubernetes.api_server import ApiServer
    from tests.kubernetes.fault_proxy import FaultProxy
    from tests.kubernetes.node.kubelet import Kubelet
    from tests.kubernetes.nodes import NodeSpec


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[ApiServer]":
    """The API server of this test session: the emulator, or what `KUBEBUILDER_ASSETS` names."""
    from tests.kubernetes.api_server import started_api_server

    folder: Path = tmp_path_factory.mktemp("api-server")
    with started_api_server(folder) as server:
        yield server


@pytest.fixture
async def namespace(api_server: "ApiServer") -> AsyncIterator[str]:
    """A fresh namespace; at the end it is emptied without asking any kubelet."""
    from tests.kubernetes.api_server import empty_namespace, make_namespace

    name = f"test-{uuid.uuid4().hex[:8]}"
    await make_namespace(api_server, name)
    yield name
    await empty_namespace(api_server, name)


@pytest.fixture
def nodes() -> "tuple[NodeSpec, ...]":
    """The nodes of a test's cluster; a test that wants others overrides this fixture."""
    from tests.kubernetes.nodes import NodeSpec

    return (NodeSpec("node-a"),)


@pytest.fixture
def kubelet(api_server: "ApiServer", namespace: str, nodes: "tuple[NodeSpec, ...]") -> "Iterator[Kubelet]":
    """A kubelet that runs the pods of the test's namespace on the test's nodes."""
    from tests.kubernetes.node.kubelet import Kubelet

    with Kubelet(api_server, nodes, namespace=namespace) as kubelet:
        yield kubelet


@pytest.fixture
def scheduler(api_server: "ApiServer", namespace: str) -> Iterator[None]:
    """Binds the pods that are created unbound: a real kube-scheduler where `KUBEBUILDER_ASSETS` has one."""
    from tests.kubernetes.real.kube_scheduler import kube_scheduler_of, started_kube_scheduler
    from tests.kubernetes.scheduler import Scheduler

    program = kube_scheduler_of(api_server)
    if program is not None:
        with started_kube_scheduler(api_server, program):
            yield
        return
    with Scheduler(api_server, namespace=namespace):
        yield


@pytest.fixture
def fault_proxy(api_server: "ApiServer") -> "Iterator[FaultProxy]":
    """A proxy before the API server that does harm on demand."""
    from tests.kubernetes.fault_proxy import FaultProxy

    with FaultProxy(api_server) as proxy:
        yield proxy

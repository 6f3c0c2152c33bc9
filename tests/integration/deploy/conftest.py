"""The manifests of `deploy/` on an API server, and what stands behind them there."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.kubernetes.api_server import ApiServer, empty_namespace, make_namespace
from tests.kubernetes.manifests import apply, manifests, remove
from tests.kubernetes.node.kubelet import Kubelet
from tests.kubernetes.nodes import NodeSpec

WORKLOADS = "gpu-dev"
SYSTEM = "gpu-dev-system"


@pytest.fixture(scope="module")
def deployed(api_server: ApiServer) -> Iterator[ApiServer]:
    """An API server with all our manifests. The emulator keeps no roles: there it is one with our namespaces."""
    asyncio.run(_deploy(api_server))
    yield api_server
    asyncio.run(_withdraw(api_server))


async def _deploy(server: ApiServer) -> None:
    async with server.client() as client:
        if server.real:
            runtime = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
            await client.try_call("POST", "/apis/node.k8s.io/v1/runtimeclasses", runtime)
            for _, document in manifests():
                await apply(client, document)
    for namespace in (WORKLOADS, SYSTEM):
        await make_namespace(server, namespace)


async def _withdraw(server: ApiServer) -> None:
    if server.real:
        async with server.client() as client:
            for _, document in manifests():
                await remove(client, document)


@pytest.fixture
async def workloads(deployed: ApiServer) -> AsyncIterator[str]:
    """The namespace of jobs; at the end it is emptied."""
    yield WORKLOADS
    await empty_namespace(deployed, WORKLOADS)


@pytest.fixture
def kubelet(deployed: ApiServer, workloads: str) -> Iterator[Kubelet]:
    """Two nodes that run the pods of jobs."""
    with Kubelet(deployed, (NodeSpec("node-a"), NodeSpec("node-b")), namespace=workloads) as kubelet:
        yield kubelet

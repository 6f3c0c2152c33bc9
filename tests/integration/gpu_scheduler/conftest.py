"""The scheduler as a process beside an API server, and pods as the webhook leaves them."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pod_scheduling.domain.maps.map_injection import InjectionRules, injection
from reservation_core.domain.pods.reviews import Denied, Operation, Patched, PodReview, Requester
from tests.kubernetes.api_client import ApiClient, JsonObject
from tests.kubernetes.api_server import ApiServer
from tests.programs.ports import own_port
from tests.programs.prepared_processes import PreparedProcess, started
from tests.waiting import PATIENCE_S, eventually

SEED_MAP = "0=node1:0,1\n1=node2:2\n2=node3:0,1,2\n3=node4:3\n4=node4:3\n"
MERGE = "application/merge-patch+json"


def pod(name: str, scheduling_map: str = SEED_MAP, **spec: Any) -> JsonObject:
    """A pod with a map, as its user writes it."""
    return {
        "metadata": {"name": name, "annotations": {"gpu-scheduling-map": scheduling_map}},
        "spec": {
            "schedulerName": "gpu-scheduler",
            "containers": [{"name": "main", "image": "registry.test/workload:1"}],
            **spec,
        },
    }


def admitted(thing: JsonObject, by: str = "ann") -> JsonObject:
    """The pod as the webhook leaves it, asked for by somebody."""
    verdict = injection(PodReview(Operation.CREATE, thing, requester=Requester(by)), InjectionRules())
    assert not isinstance(verdict, Denied), verdict
    return dict(verdict.pod) if isinstance(verdict, Patched) else thing


def node(name: str, label: str, **spec: Any) -> JsonObject:
    """A node that is ready and has room."""
    amounts = {"cpu": "8", "memory": "64Gi", "pods": "110"}
    return {
        "metadata": {"name": name, "labels": {"gpu-node-name": label}},
        "spec": spec,
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ok"}],
        },
    }


@dataclass
class Cluster:
    """Nodes of its own, whose names nobody else uses, and pods in one namespace."""

    client: ApiClient
    namespace: str
    prefix: str
    nodes: list[str] = field(default_factory=list)

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    async def add_node(self, label: str, *, ready: bool = True, **spec: Any) -> str:
        """A node with the logical name `label`; returns its own name."""
        name = f"{self.prefix}-{len(self.nodes)}"
        body = node(name, label, **spec)
        if not ready:
            body["status"]["conditions"][0]["status"] = "False"
        await self.client.call("POST", "/api/v1/nodes", {"metadata": body["metadata"], "spec": body["spec"]})
        self.nodes.append(name)
        await self.client.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": body["status"]}, content_type=MERGE)
        # A node is made with the taint of one that is not ready, which its controller would take away.
        taints = {"spec": {"taints": spec.get("taints")}}
        await self.client.call("PATCH", f"/api/v1/nodes/{name}", taints, content_type=MERGE)
        return name

    async def change_node(self, name: str, change: Mapping[str, Any], *, status: bool = False) -> None:
        path = f"/api/v1/nodes/{name}" + ("/status" if status else "")
        await self.client.call("PATCH", path, dict(change), content_type=MERGE)

    async def add(self, thing: JsonObject) -> str:
        """Make a pod; returns its name."""
        made = await self.client.call("POST", self.path, thing)
        return str(made["metadata"]["name"])

    async def read(self, name: str) -> JsonObject:
        return await self.client.call("GET", f"{self.path}/{name}")

    async def node_of(self, name: str) -> str | None:
        found = (await self.read(name))["spec"].get("nodeName")
        return None if found is None else str(found)

    async def why(self, name: str) -> str | None:
        """What the pod was told; None while it was told nothing."""
        conditions = (await self.read(name))["status"].get("conditions") or []
        told = [
            condition
            for condition in conditions
            if condition["type"] == "PodScheduled" and condition["status"] == "False"
        ]
        return str(told[0]["message"]) if told else None

    async def eventually_on(self, name: str, expected: str) -> None:
        async def there() -> bool:
            return await self.node_of(name) == expected

        await eventually(there)

    async def eventually_told(self, name: str, *words: str) -> None:
        async def told() -> bool:
            why = await self.why(name)
            return why is not None and all(word in why for word in words)

        await eventually(told)
        assert await self.node_of(name) is None


@pytest.fixture
async def cluster(api_server: ApiServer, namespace: str) -> AsyncIterator[Cluster]:
    async with api_server.client() as client:
        made = Cluster(client, namespace, f"n{uuid.uuid4().hex[:8]}")
        yield made
        for name in made.nodes:
            await client.try_call("DELETE", f"/api/v1/nodes/{name}", {})


@pytest.fixture
async def four_nodes(cluster: Cluster) -> list[str]:
    """Nodes that the seed's map calls node1 … node4; their own names."""
    return [await cluster.add_node(f"node{number}") for number in range(1, 5)]


@dataclass
class Process:
    """A scheduler that runs."""

    process: PreparedProcess | subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def output(self) -> list[str]:
        """What it said, line by line."""
        return self.log.read_text().splitlines()

    async def get(self, path: str) -> tuple[int, str]:
        """Status and body of its health address."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
        head, _, body = answer.partition("\r\n\r\n")
        return int(head.split()[1]), body

    async def ready(self) -> bool:
        with suppress(ConnectionError):
            return (await self.get("/ready"))[0] == 200
        assert self.process.poll() is None, self.output
        return False

    async def leading(self) -> bool:
        return "gpu_dev_scheduler_leading 1.0" in (await self.get("/metrics"))[1]

    def logged(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.output if line.startswith("{")]
        return [line for line in lines if line.get("event") == event]


Starter = Callable[..., Awaitable[Process]]


@pytest.fixture
async def start(api_server: ApiServer, namespace: str) -> AsyncIterator[Starter]:
    """Start a scheduler; all end with the test. Further variables as `NAME="value"`; without `forked`, as people do."""
    async with running(api_server.kubeconfig, namespace) as starter:
        yield starter


@asynccontextmanager
async def running(kubeconfig: Path, namespace: str) -> AsyncIterator[Starter]:
    processes: list[Process] = []
    logs = Path(tempfile.mkdtemp())

    async def starter(
        kubeconfig: Path = kubeconfig, *, wait: bool = True, forked: bool = True, **variables: str
    ) -> Process:
        port = own_port()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GPU_DEV_")}
        environment |= {
            "GPU_DEV_SCHEDULER__LEASE_NAMESPACE": namespace,
            "GPU_DEV_SCHEDULER__LEASE_S": "3",
            "GPU_DEV_SCHEDULER__RENEW_WITHIN_S": "2",
            "GPU_DEV_SCHEDULER__RETRY_S": "0.3",
            **variables,
        }
        program = ("gpu_scheduler", "--kubeconfig", str(kubeconfig), "--health-listen", f"127.0.0.1:{port}")
        log = logs / f"{len(processes)}.log"
        made = Process(started(program, environment, log, forked=forked), port, log)
        processes.append(made)
        if wait:
            await eventually(made.ready)
        return made

    try:
        yield starter
    finally:
        for process in processes:
            process.process.send_signal(signal.SIGKILL)
        for process in processes:
            await asyncio.to_thread(process.process.wait, PATIENCE_S)
        shutil.rmtree(logs)

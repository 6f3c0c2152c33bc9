"""The whole system as a process of its own, on a Kubernetes cluster of its own nodes."""

import asyncio
import itertools
import signal
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from tests.database.pools import BESIDE_SILENT_CLUSTERS
from tests.e2e.systems.system_process import FINAL, SystemProcess
from tests.kubernetes.api_client import JsonObject
from tests.kubernetes.api_server import ApiServer, empty_namespace, make_namespace
from tests.kubernetes.node.kubelet import Kubelet
from tests.kubernetes.nodes import NodeSpec
from tests.kubernetes.scheduler import Scheduler
from tests.waiting import eventually_sync

# Like the defaults, but quicker to notice: a test has no minute to wait for a repair.
QUICK = {
    "GPU_DEV_DATABASE_POOL": str(BESIDE_SILENT_CLUSTERS),
    "GPU_DEV_LEASE_S": "1",
    "GPU_DEV_SWEEP_S": "0.2",
    "GPU_DEV_RESYNC_S": "1",
    "GPU_DEV_VISIBILITY_S": "2",
    "GPU_DEV_UPDATE_EVERY_S": "0.5",
    "GPU_DEV_EXPIRE_EVERY_S": "0.2",
    "GPU_DEV_ENDING_PATIENCE_S": "2",
    "GPU_DEV_KUBERNETES__DEFAULT_IMAGE": "registry.test/workload:1",
    "GPU_DEV_KUBERNETES__REQUEST_TIMEOUT_S": "10",
}
_SLOWEST_S = 120


@dataclass(frozen=True, slots=True)
class KubernetesSystem:
    """A running installation. `namespace` is where its pods are, `folder` is for what a test wants to write."""

    process: SystemProcess
    server: ApiServer
    kubelet: Kubelet
    namespace: str
    folder: Path
    numbers: Iterator[int]

    @property
    def http(self) -> httpx.Client:
        """An administrator's client; close it."""
        return self.process.client()

    def api(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json", **query: str
    ) -> JsonObject:
        """One call to the API server, as its administrator."""

        async def call() -> JsonObject:
            async with self.server.client() as client:
                return await client.call(method, path, body, content_type=content_type, **query)

        return asyncio.run(call())

    def pods(self, job: str) -> list[JsonObject]:
        """The pod objects of a job, in the order of their names."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        items = self.api("GET", path, labelSelector=f"gpu-dev/reservation={job}")["items"]
        return sorted(items, key=lambda pod: str(pod["metadata"]["name"]))

    def services(self) -> list[JsonObject]:
        """All services of the namespace."""
        return list(self.api("GET", f"/api/v1/namespaces/{self.namespace}/services")["items"])

    def gate(self) -> Path:
        """A file that does not exist yet."""
        return self.folder / f"gate-{next(self.numbers)}"

    def submit(self, script: str, *, gpus: int = 1, duration: int = 300, **fields: object) -> str:
        """Submit a job that runs a shell script; its id."""
        body = {"gpus": gpus, "duration": duration, "workload": {"command": ["sh", "-c", script]}, **fields}
        with self.http as http:
            answer = http.post("/v1/jobs", json=body)
        assert answer.status_code == 202, answer.text
        self.process.jobs.append(answer.json()["id"])
        return self.process.jobs[-1]

    def job(self, job: str) -> dict[str, Any]:
        """How it stands."""
        with self.http as http:
            found: dict[str, Any] = http.get(f"/v1/jobs/{job}").raise_for_status().json()
        return found

    def reaches(self, job: str, *wanted: str, timeout: float = _SLOWEST_S) -> dict[str, Any]:
        """Wait until it has one of these statuses; the job."""

        def look() -> dict[str, Any] | None:
            found = self.job(job)
            if found["status"] in FINAL and found["status"] not in wanted:
                raise AssertionError(f"{job} is {found['status']} ({found['reason']}), not {' or '.join(wanted)}")
            return found if found["status"] in wanted else None

        try:
            found = eventually_sync(look, timeout)
        except AssertionError as problem:
            pods = [(pod["metadata"]["name"], pod["status"]) for pod in self.pods(job)]
            raise AssertionError(f"{problem}\n{self.job(job)}\n{pods}\n{self.process.log[-4000:]}") from None
        assert found is not None
        return found

    def log(self, job: str, **query: str) -> str:
        """What it printed, as its owner gets it."""
        with self.http as http:
            return http.get(f"/v1/jobs/{job}/logs", params=query).raise_for_status().text

    def cancel(self, job: str) -> None:
        """Ask for its end."""
        with self.http as http:
            http.post(f"/v1/jobs/{job}/cancel").raise_for_status()

    def gpu_states(self, node: str | None = None) -> set[str]:
        """The states of all cards, or of one node's."""
        with self.http as http:
            items = http.get("/v1/gpus", params={"limit": 100}).raise_for_status().json()["items"]
        return {gpu["state"] for gpu in items if node in (None, gpu["node"])}

    def node(self, name: str) -> dict[str, Any]:
        """A node as the API shows it."""
        with self.http as http:
            items = http.get("/v1/nodes").raise_for_status().json()["items"]
        return next(node for node in items if node["name"] == name)

    def comes_to_rest(self, *jobs: str) -> None:
        """Wait until nothing is left of these jobs: no pod, no process, no service; and no card is held twice ever."""

        def at_rest() -> bool:
            names = [name for job in jobs for name in self.kubelet.running() if name.startswith(job)]
            services = [service for service in self.services() if service["metadata"]["name"].startswith(jobs)]
            return not names and not services and not any(self.pods(job) for job in jobs)

        eventually_sync(at_rest, _SLOWEST_S)
        assert self.kubelet.double_use == []

    def all_free(self) -> None:
        """Wait until every card is free."""
        eventually_sync(lambda: self.gpu_states() == {"free"}, _SLOWEST_S)

    def left_as_it_was(self) -> None:
        """Wait until all cards are free, and were never held twice; what is left of a failed test is ended."""
        self.kubelet.let_be()
        try:
            self.all_free()
            assert self.kubelet.double_use == []
        except (AssertionError, httpx.TransportError):
            self._end_all()
            raise

    def _end_all(self) -> None:
        if self.process.process.poll() is not None:
            self.process.start().close()
        unfinished = {"limit": 100, "status": ["queued", "starting", "running", "ending"]}
        with self.http as http:
            for job in http.get("/v1/jobs", params=unfinished).raise_for_status().json()["items"]:
                http.post(f"/v1/jobs/{job['id']}/cancel")
        self.all_free()

    @contextmanager
    def foreign_pod(self, node: str, gpus: int) -> Iterator[str]:
        """A pod of somebody else's, in a namespace of its own, that holds cards of a node; `namespace/name`."""
        theirs = f"theirs-of-{self.namespace}"
        asyncio.run(make_namespace(self.server, theirs))
        amount = {"nvidia.com/gpu": str(gpus)}
        container = {"name": "theirs", "image": "theirs:1", "resources": {"limits": amount, "requests": amount}}
        spec = {"nodeName": node, "containers": [container]}
        pods = f"/api/v1/namespaces/{theirs}/pods"
        self.api("POST", pods, {"metadata": {"name": "train"}, "spec": spec})
        try:
            yield f"{theirs}/train"
        finally:
            self.api("DELETE", f"{pods}/train", {"gracePeriodSeconds": 0})


def pool_of(namespace: str) -> dict[str, str]:
    """The label by which a system's nodes are its own: nodes belong to no namespace."""
    return {"gpu-dev/pool": namespace}


@contextmanager
def kubernetes_system(
    server: ApiServer,
    database_url: str,
    folder: Path,
    nodes: Sequence[NodeSpec],
    *,
    kubeconfig: Path | None = None,
    **settings: str,
) -> Iterator[KubernetesSystem]:
    """A system that is up, on nodes of its own; nothing of it is left afterwards. `settings` are variables."""
    namespace = f"e2e-{uuid.uuid4().hex[:8]}"
    asyncio.run(_prepare(server, namespace))
    own = [replace(spec, labels={**spec.labels, **pool_of(namespace)}) for spec in nodes]
    process = SystemProcess(
        folder / "home",
        forked=True,
        **QUICK,
        GPU_DEV_CLUSTER="kubernetes",
        GPU_DEV_DATABASE_URL=database_url,
        GPU_DEV_KUBERNETES__KUBECONFIG=str(kubeconfig or server.kubeconfig),
        GPU_DEV_KUBERNETES__NAMESPACE=namespace,
        GPU_DEV_KUBERNETES__NODE_SELECTOR=f"gpu-dev/pool={namespace}",
        **settings,
    )
    with (
        Kubelet(server, own, namespace=namespace, resolve=True) as kubelet,
        Scheduler(server, namespace=namespace),
    ):
        try:
            process.start().close()
            yield KubernetesSystem(process, server, kubelet, namespace, folder, itertools.count())
            if process.process.poll() is None:
                assert process.end(signal.SIGTERM) == 0, process.log[-4000:]
        finally:
            process.clear()
            asyncio.run(empty_namespace(server, namespace))


async def _prepare(server: ApiServer, namespace: str) -> None:
    await make_namespace(server, namespace)
    async with server.client() as client:
        body = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
        await client.try_call("POST", "/apis/node.k8s.io/v1/runtimeclasses", body)

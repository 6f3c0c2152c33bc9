"""A real API server with nodes for a benchmark, and the peer: bare pods created by the same client.

`python -m benchmarks.kubernetes.kubernetes_cluster bare KUBECONFIG NAMESPACE NODES COUNT PARALLEL WARM` creates so
many pods with `nodeName`, as many at once as is said and after some that are not counted, and prints how many seconds
that took and how many of work; `alike` instead of `bare` creates such pods as jobs have; `relist KUBECONFIG NAMESPACE
ROUNDS` prints how many seconds each listing of all our pods took.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import uvloop

from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.kubernetes.api_server.credentials import Credentials
from reservation_core.adapters.kubernetes.api_server.retries import MERGE_PATCH, ONLY_METADATA, Transport
from reservation_core.adapters.kubernetes.pods.built_pods import build_pod
from reservation_core.domain.model import PodName, PodSpec, PodWorkload
from reservation_core.domain.pods.pod_environment import JOB_ID_VARIABLE
from reservation_core.runtime.kubernetes import cluster_rules, open_kubernetes
from reservation_core.runtime.processes.garbage import calm_garbage_collector
from reservation_core.runtime.settings.components import CommonSettings
from reservation_core.runtime.wiring import open_runtime
from reservation_core.usecases.nodes.update_inventory import update_inventory
from tests.kubernetes.api_server import ApiServer, make_namespace, started_api_server
from tests.kubernetes.nodes import NodeSpec

ASSETS = "KUBEBUILDER_ASSETS"
GPUS_PER_NODE = 8
_AT_ONCE = 16
_PATIENCE_S = 300.0
_LOOK_EVERY_S = (0.01, 0.2)  # looking is work for the server that is measured: often only when it is soon over
_IMAGE = "registry.test/workload:1"


@contextmanager
def real_api_server() -> Iterator[ApiServer]:
    """A kube-apiserver on an etcd, from the programs that KUBEBUILDER_ASSETS names."""
    with tempfile.TemporaryDirectory() as folder, started_api_server(Path(folder)) as server:
        yield server


def settings_of(server: ApiServer, namespace: str, home: Path) -> CommonSettings:
    """An installation's settings on this server: pods go to their nodes by name, and nothing is paced."""
    kubernetes = {
        "kubeconfig": server.kubeconfig,
        "namespace": namespace,
        "default_image": _IMAGE,
        "creates_per_s": 0,
    }
    return CommonSettings.model_validate(
        {"home": home, "cluster": "kubernetes", "gpu": {"pin": "nodeName"}, "kubernetes": kubernetes}
    )


async def add_nodes(server: ApiServer, count: int) -> None:
    """So many ready nodes with cards; those that are there stay."""
    async with server.client() as client:
        for body in [{"metadata": {"name": "nvidia"}, "handler": "nvidia"}]:
            await client.try_call("POST", "/apis/node.k8s.io/v1/runtimeclasses", body)

        async def add(number: int) -> None:
            spec = NodeSpec(f"node-{number:05}", gpus=GPUS_PER_NODE)
            body = spec.body(10_250)
            if await client.try_call("POST", "/api/v1/nodes", body):
                path = f"/api/v1/nodes/{spec.name}"
                await client.call("PATCH", f"{path}/status", {"status": body["status"]}, content_type=MERGE_PATCH)
                await client.call("PATCH", path, {"spec": {"taints": None}}, content_type=MERGE_PATCH)

        await at_once(count, add)


async def at_once(count: int, work: Callable[[int], Awaitable[None]], parallel: int = _AT_ONCE) -> None:
    """Do it for every number below `count`, so many at a time."""
    numbers = iter(range(count))

    async def one_after_another() -> None:
        for number in numbers:
            await work(number)

    await asyncio.gather(*(one_after_another() for _ in range(parallel)))


async def add_inventory(server: ApiServer, url: str, namespace: str, home: Path) -> None:
    """A namespace on the server, and the server's nodes in the database, as the updater sees them."""
    await make_namespace(server, namespace)
    async with open_runtime(settings_of(server, namespace, home), url, application="bench") as runtime:
        await update_inventory(runtime.uow, runtime.cluster, runtime.clock)


@contextmanager
def processor(server: ApiServer, url: str, namespace: str, home: Path) -> Iterator[psutil.Process]:
    """The processor as delivered, unpaced, once it leads."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GPU_DEV_")}
    environment |= {
        "GPU_DEV_DATABASE_URL": url,
        "GPU_DEV_HOME": str(home),
        "GPU_DEV_CLUSTER": "kubernetes",
        "GPU_DEV_GPU__PIN": "nodeName",
        "GPU_DEV_KUBERNETES__KUBECONFIG": str(server.kubeconfig),
        "GPU_DEV_KUBERNETES__NAMESPACE": namespace,
        "GPU_DEV_KUBERNETES__DEFAULT_IMAGE": _IMAGE,
        "GPU_DEV_KUBERNETES__CREATES_PER_S": "0",
        "GPU_DEV_POD_OPERATIONS_PER_S": "100000",
    }
    log = home / f"processor-{namespace}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "reservation_processor"], env=environment, stdout=output, stderr=output
        )
    try:
        _await(lambda: b'"leading"' in log.read_bytes(), process, log)
        yield psutil.Process(process.pid)
        if process.poll() is not None:
            raise RuntimeError(f"the processor ended: {log.read_text()[-3000:]}")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _await(condition: Callable[[], bool], process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the processor did not begin: {log.read_text()[-3000:]}")
        time.sleep(0.05)


async def bound(server: ApiServer, namespace: str, count: int) -> float:
    """Wait until so many pods are there (a pod that names its node is bound); the monotonic clock then."""
    begun = time.monotonic()
    shortest, longest = _LOOK_EVERY_S
    async with server.client() as client:
        while (there := await _pods(client, namespace)) < count:
            passed = time.monotonic() - begun
            if passed > _PATIENCE_S:
                raise RuntimeError(f"{there} of {count} pods are there after {_PATIENCE_S:.0f} s")
            half_of_what_is_left = passed * (count - there) / max(1, there) / 2
            await asyncio.sleep(min(longest, max(shortest, half_of_what_is_left)))
    return time.monotonic()


async def bound_a_second(server: ApiServer, namespace: str, count: int) -> float:
    """Wait until so many pods are there; pods a second since some were first seen."""
    shortest, _ = _LOOK_EVERY_S
    begun = time.monotonic()
    async with server.client() as client:
        while not (first := await _pods(client, namespace)):
            if time.monotonic() - begun > _PATIENCE_S:
                raise RuntimeError(f"no pods are there after {_PATIENCE_S:.0f} s")
            await asyncio.sleep(shortest)
    since = time.monotonic()
    return (count - first) / (await bound(server, namespace, count) - since)


async def _pods(client: Any, namespace: str) -> int:
    listed = await client.call("GET", f"/api/v1/namespaces/{namespace}/pods", limit="1")
    return len(listed["items"]) + int(listed["metadata"].get("remainingItemCount", 0))


async def remove_pods(server: ApiServer, namespace: str) -> None:
    """Remove all pods of a namespace, without any kubelet's word."""
    async with server.client() as client:
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        await client.call("DELETE", f"/api/v1/namespaces/{namespace}/pods", options)


def ask(*arguments: object) -> list[float]:
    """Run this module with arguments in a process of its own; the numbers that it prints."""
    command = [sys.executable, "-m", "benchmarks.kubernetes.kubernetes_cluster", *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [float(word) for word in done.stdout.split()]


async def _created(
    kubeconfig: Path, namespace: str, make: Callable[[int], Mapping[str, Any]], count: int, parallel: int, warm: int
) -> tuple[float, float]:
    """Seconds for so many pods, after some that are not counted, and seconds of this process's own work."""
    transport = Transport(Credentials(kubeconfig, None, {}), 30)
    path = f"/api/v1/namespaces/{namespace}/pods"
    calm_garbage_collector()

    async def create(number: int) -> None:
        await transport.request("POST", path, body=make(number), accept=ONLY_METADATA)

    await at_once(warm, lambda number: create(count + number), parallel)  # connections, credentials
    begun, worked = time.monotonic(), time.process_time()
    await at_once(count, create, parallel)
    seconds, work = time.monotonic() - begun, time.process_time() - worked
    await transport.close()
    return seconds, work


def _bare_pods(nodes: int) -> Callable[[int], Mapping[str, Any]]:
    def make(number: int) -> Mapping[str, Any]:
        container = {"name": "bare", "image": _IMAGE, "command": ["true"]}
        spec = {"nodeName": f"node-{number % nodes:05}", "restartPolicy": "Never", "containers": [container]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"bare-{number}"}, "spec": spec}

    return make


def _pods_alike(namespace: str, nodes: int) -> Callable[[int], Mapping[str, Any]]:
    """What makes the pod of a job with one card."""
    settings = CommonSettings.model_validate({"gpu": {"pin": "nodeName"}, "kubernetes": {"namespace": namespace}})
    rules, now = cluster_rules(settings).pods, SystemClock().now()
    end = now + timedelta(hours=1)

    def make(number: int) -> Mapping[str, Any]:
        name, node = PodName(f"job-{number:06}", 1, 0), f"node-{number % nodes:05}"
        spec = PodSpec(
            name=name,
            user="bench",
            node=node,
            gpu_indices=(number // nodes % GPUS_PER_NODE,),
            gpu_uuids=(None,),
            workload=PodWorkload(("python", "train.py"), image=_IMAGE),
            env=((JOB_ID_VARIABLE, name.reservation_id), ("GPU_DEV_NODE", node)),
            deadline=end,
            grace=timedelta(seconds=10),
            user_id=1,
            starts_at=now,
            ends_at=end,
        )
        return build_pod(spec, rules, now)

    return make


async def _relist(kubeconfig: Path, namespace: str, rounds: int) -> list[float]:
    settings = CommonSettings.model_validate({"kubernetes": {"kubeconfig": kubeconfig, "namespace": namespace}})
    cluster = open_kubernetes(settings, SystemClock())
    calm_garbage_collector()
    taken = []
    for _ in range(rounds):
        begun = time.monotonic()
        await cluster.list_pods()
        taken.append(time.monotonic() - begun)
    await cluster.close()
    return taken


if __name__ == "__main__":
    what, config, where, *words = sys.argv[1:]
    numbers = [int(word) for word in words]
    if what == "relist":
        print(*uvloop.run(_relist(Path(config), where, *numbers)))
    else:
        on, so_many, at_a_time, uncounted = numbers
        form = _pods_alike(where, on) if what == "alike" else _bare_pods(on)
        print(*uvloop.run(_created(Path(config), where, form, so_many, at_a_time, uncounted)))

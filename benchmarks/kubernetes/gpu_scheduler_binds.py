"""Pods with a scheduling map bound on a real API server, beside what kube-scheduler binds there, and 5,000 that wait.

The pods are there before their scheduler is started; the clock runs from the first that is bound to the last. Both
schedulers, the API server and its etcd share this machine.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from benchmarks.kubernetes.kubernetes_cluster import (
    ASSETS,
    GPUS_PER_NODE,
    add_nodes,
    ask,
    at_once,
    real_api_server,
    remove_pods,
)
from benchmarks.measuring.do_nothing import SERVER, do_nothing
from benchmarks.measuring.figures import Figure
from benchmarks.measuring.references import against
from pod_scheduling.domain.maps.map_injection import InjectionRules, injection
from pod_scheduling.domain.maps.remembered_maps import KnownMaps
from reservation_core.domain.pods.reviews import Operation, Patched, PodReview
from tests.kubernetes.api_server import ApiServer, make_namespace
from tests.kubernetes.real.kube_scheduler import kube_scheduler_of, started_kube_scheduler

NODES = 200
PODS = 1000
WAITING = 5000
SET = 50
ROUNDS = 3
PARALLEL = 32
TARGET = 0.2
TARGET_MEMORY = 5.0
_LOOK_S = 0.02
_PATIENCE_S = 120.0
_MAPS = KnownMaps()


def measure() -> list[Figure]:
    """Binds a second, and the memory with many that wait; nothing without a real API server."""
    if not os.environ.get(ASSETS):
        print(f"    (no {ASSETS}: nothing to measure)")
        return []
    with real_api_server() as server, tempfile.TemporaryDirectory() as folder:
        asyncio.run(add_nodes(server, NODES))
        rates, bare_rates, peers = [], [], []
        program = kube_scheduler_of(server)
        for number in range(ROUNDS):
            rates.append(_bound_a_second(server, f"mapped-{number}", _mapped, partial(scheduler, server, Path(folder))))
            bare_rates.append(_bare_pods_a_second(server, f"bare-{number}"))
            if program is not None:
                peer = partial(started_kube_scheduler, server, program)
                peers.append(_bound_a_second(server, f"asking-{number}", _asking, peer))
        memory = _memory_with_many_waiting(server, Path(folder))
    beside = (
        f"kube-scheduler here, at its own default of 50 requests/s: {', '.join(f'{rate:.0f}' for rate in peers)}/s"
        if peers
        else "no kube-scheduler"
    )
    with do_nothing() as bare:
        bare_memory = [bare.memory_mb]
    created = "bare pods created with nodeName"
    return [
        against("mapped pods bound", rates, bare_rates, TARGET, unit="/s", of=created, at_least=True, detail=beside),
        against(
            f"scheduler with {WAITING:,} pods that wait",
            [memory],
            bare_memory,
            TARGET_MEMORY,
            unit=" MB (PSS)",
            of=SERVER,
        ),
    ]


@contextmanager
def scheduler(server: ApiServer, folder: Path) -> Iterator[tuple[psutil.Process, int]]:
    """The scheduler as delivered, and where it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GPU_DEV_")}
    command = [sys.executable, "-m", "gpu_scheduler", "--kubeconfig", str(server.kubeconfig)]
    with (folder / "scheduler.log").open("ab") as log:
        process = subprocess.Popen([*command, "--health-listen", f"127.0.0.1:{port}"], env=environment, stderr=log)
    try:
        yield psutil.Process(process.pid), port
        if process.poll() is not None:
            raise RuntimeError((folder / "scheduler.log").read_text()[-3000:])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _bare_pods_a_second(server: ApiServer, namespace: str) -> float:
    asyncio.run(make_namespace(server, namespace))
    seconds, _ = ask("bare", server.kubeconfig, namespace, NODES, PODS, PARALLEL, PARALLEL)
    asyncio.run(remove_pods(server, namespace))
    return PODS / seconds


def _bound_a_second(
    server: ApiServer, namespace: str, make: Callable[[int], Mapping[str, Any]], start: Callable[[], Any]
) -> float:
    asyncio.run(_create(server, namespace, make, PODS))
    with ExitStack() as running:
        running.enter_context(start())
        rate = asyncio.run(_all_bound(server, namespace))
    asyncio.run(remove_pods(server, namespace))
    return rate


async def _create(server: ApiServer, namespace: str, make: Callable[[int], Mapping[str, Any]], count: int) -> None:
    await make_namespace(server, namespace)
    async with server.client() as client:

        async def create(number: int) -> None:
            await client.call("POST", f"/api/v1/namespaces/{namespace}/pods", dict(make(number)))

        await at_once(count, create)


async def _all_bound(server: ApiServer, namespace: str) -> float:
    """Pods a second from the first that is bound to the last."""
    deadline = time.monotonic() + _PATIENCE_S
    first: float | None = None
    async with server.client() as client:
        path = f"/api/v1/namespaces/{namespace}/pods"
        while time.monotonic() < deadline:
            if first is None:
                some = await client.call("GET", path, fieldSelector="spec.nodeName!=", limit="1")
                first = time.monotonic() if some["items"] else None
            else:
                left = await client.call("GET", path, fieldSelector="spec.nodeName=", limit="1")
                if not left["items"]:
                    return PODS / (time.monotonic() - first)
            await asyncio.sleep(_LOOK_S)
    raise RuntimeError(f"not all of {PODS} pods were bound within {_PATIENCE_S:.0f} s")


def _memory_with_many_waiting(server: ApiServer, folder: Path) -> float:
    """MB (PSS) of the scheduler when so many pods wait, and half of them were told why."""
    asyncio.run(_create(server, "waiting", lambda number: _mapped(number, "no-such-node"), WAITING))
    with scheduler(server, folder) as (process, port):
        deadline = time.monotonic() + _PATIENCE_S
        while _metric(port, "waiting") < WAITING or _metric(port, "told_total") < WAITING / 2:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{_metric(port, 'told_total'):.0f} of {WAITING} pods were told why they wait")
            time.sleep(0.2)
        return float(process.memory_full_info().pss) / 1e6


def _metric(port: int, name: str) -> float:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
    except urllib.error.URLError:
        return 0.0
    return next(float(line.split()[1]) for line in lines if line.startswith(f"gpu_dev_scheduler_{name} "))


def _mapped(number: int, node: str | None = None) -> Mapping[str, Any]:
    """A pod as the webhook leaves it: one of a set with one map, each with a card of its own."""
    first = number // SET * SET
    entries = (
        f"{index}={node or f'node-{index % NODES:05}'}:{index // NODES % GPUS_PER_NODE}"
        for index in range(first, first + SET)
    )
    pod = {
        "metadata": {
            "name": f"mapped-{number}",
            "annotations": {"gpu-scheduling-map": "\n".join(entries), "gpu-scheduling-index": str(number)},
        },
        "spec": {"schedulerName": "gpu-scheduler", "containers": [{"name": "main", "image": "registry.test/w:1"}]},
    }
    verdict = injection(PodReview(Operation.CREATE, pod), InjectionRules(), _MAPS.read)
    if not isinstance(verdict, Patched):
        raise TypeError(f"the pod was not admitted: {verdict}")
    return verdict.pod


def _asking(number: int) -> Mapping[str, Any]:
    """A pod that asks kube-scheduler for a card."""
    container = {"name": "main", "image": "registry.test/w:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {"metadata": {"name": f"asking-{number}"}, "spec": {"containers": [container]}}

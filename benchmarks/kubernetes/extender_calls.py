"""The extender asked as kube-scheduler asks it: filter and then prioritize of 1,213 nodes by name, on one core.

The cluster is as large as the published trace: 1,213 nodes of 1 to 8 cards, and 10,000 pods on them. Each pod asked
about is another one; the pair's time counts, from the first byte sent to the last one received. The client has the
other core. Nodes as objects are measured beside, without a target: so much is what `nodeCacheCapable: false` costs.
"""

import asyncio
import gc
import json
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.measuring.do_nothing import SERVER, do_nothing
from benchmarks.measuring.figures import Figure
from benchmarks.measuring.references import LOOP, against, loop_ms
from tests.kubernetes.api_server import ApiServer, make_namespace, started_api_server
from tests.programs.extender_process import extender_process

NODES = 1213
PODS = 10_000
PAIRS = 400
ROUNDS = 5
TARGET_LOOPS = 0.52
TARGET_MEMORY = 6.0
_AT_ONCE = 32
_PATIENCE_S = 120.0
_NAMESPACE = "placed"
_MODELS = ("P100", "T4", "Tesla-V100-SXM2-32GB", "NVIDIA-A100-SXM4-80GB")
_SIZES = (8, 8, 2, 8, 4, 8, 1)
_CORE, _MEMORY, _WHOLE = "tencent.com/vcuda-core", "tencent.com/vcuda-memory", "nvidia.com/gpu"


def measure() -> list[Figure]:
    """The pair's p99, and the memory, with the pods there."""
    with tempfile.TemporaryDirectory() as folder, started_api_server(Path(folder)) as server:
        asyncio.run(_fill(server))
        with (
            extender_process(Path(folder) / "admission.log", server.kubeconfig, forked=False) as admission,
            _alone_on_a_core(admission.process.pid) as served,
        ):
            port = int(admission.url.rpartition(":")[2])
            _await_pods(admission.url)
            _await_marks(admission.url)
            worst, details, loops = [], [], []
            _pairs(port, 50)  # not counted: connections, what is loaded at the first question
            before = served.cpu_times()
            for _ in range(ROUNDS):
                loops.append(loop_ms())
                took = sorted(_pairs(port, PAIRS))
                worst.append(took[int(len(took) * 0.99)] * 1000)
                details.append(took[len(took) // 2] * 1000)
            after = served.cpu_times()
            each = (after.user + after.system - before.user - before.system) * 1000 / (ROUNDS * PAIRS)
            memory = served.memory_full_info().pss / 1e6
            objects = statistics.median(_pairs(port, 5, objects=True)) * 1000
    with do_nothing() as bare:
        bare_memory = [bare.memory_mb]
    told = f"p50 {statistics.median(details):.2g} ms; {each:.2g} ms of its core; {objects:.0f} ms with nodes as objects"
    name = f"extender, filter + prioritize of {NODES:,} nodes, p99"
    return [
        against(name, worst, loops, TARGET_LOOPS, unit=" ms", of=LOOP, detail=told),
        against(
            f"extender, memory with {PODS:,} pods", [memory], bare_memory, TARGET_MEMORY, unit=" MB (PSS)", of=SERVER
        ),
    ]


@contextmanager
def _alone_on_a_core(pid: int) -> Iterator[psutil.Process]:
    own = os.sched_getaffinity(0)
    cores = sorted(own)
    served = psutil.Process(pid)
    for thread in served.threads():
        os.sched_setaffinity(thread.id, {cores[0]})
    os.sched_setaffinity(0, set(cores[1:]) or own)
    try:
        yield served
    finally:
        os.sched_setaffinity(0, own)


async def _fill(server: ApiServer) -> None:
    await make_namespace(server, _NAMESPACE)
    async with server.client() as client:

        async def add(path: str, thing: Mapping[str, Any]) -> None:
            await client.call("POST", path, dict(thing))

        async def node(number: int) -> None:
            thing = _node(number)
            await add("/api/v1/nodes", {key: thing[key] for key in ("metadata", "spec")})
            path = f"/api/v1/nodes/{thing['metadata']['name']}/status"
            status = {"status": thing["status"]}
            await client.call("PATCH", path, status, content_type="application/merge-patch+json")

        async def pod(number: int) -> None:
            await add(f"/api/v1/namespaces/{_NAMESPACE}/pods", _pod(number, node=_name(number % NODES)))

        for count, work in ((NODES, node), (PODS, pod)):
            for first in range(0, count, _AT_ONCE):
                await asyncio.gather(*(work(number) for number in range(first, min(first + _AT_ONCE, count))))


def _await_pods(url: str) -> None:
    """Until some filter answers about the last node: all of a list is taken in before anything is answered."""
    found = json.loads(_ask(int(url.rpartition(":")[2]), "predicates", _question(0)))
    if found["Error"] or len(found["NodeNames"]) + len(found["FailedNodes"]) == 0:
        raise RuntimeError(str(found)[:1000])


def _await_marks(url: str) -> None:
    """Until the cards of pods with shares, which nobody has marked, are written or told to be missing: that is once."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        lines = httpx.get(f"{url}/metrics", trust_env=False, timeout=_PATIENCE_S).text.splitlines()
        numbers = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        done = sum(float(numbers[f"gpu_dev_admission_{name}_total"]) for name in ("marked", "without_room"))
        if done >= len(range(0, PODS, 5)):
            return
        time.sleep(0.1)
    raise TimeoutError(f"{done:g} pods with shares were looked at")


def _name(number: int) -> str:
    return f"openb-node-{number:04}.cluster.example.org"


def _node(number: int) -> Mapping[str, Any]:
    cards = _SIZES[number % len(_SIZES)]
    amounts = {"cpu": "96", "memory": "768Gi", "pods": "110", "ephemeral-storage": "1Ti", "hugepages-2Mi": "0"}
    shared = number % 3 == 0
    amounts |= {_CORE: str(100 * cards), _MEMORY: str(32 * cards)} if shared else {_WHOLE: str(cards)}
    labels = {
        "kubernetes.io/hostname": _name(number), "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": f"zone-{number % 3}", "gpu-pool": "public",
        "nvidia.com/gpu.product": _MODELS[number % len(_MODELS)],
        **{f"feature.node.kubernetes.io/cpu-{listed_number}": "true" for listed_number in range(60)},
    }  # fmt: skip
    images = [
        {"names": [f"registry.example.org/image-{listed_number}@sha256:{'0' * 64}"], "sizeBytes": 1}
        for listed_number in range(50)
    ]
    conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting"}]
    status = {"capacity": amounts, "allocatable": amounts, "conditions": conditions, "images": images}
    return {"metadata": {"name": _name(number), "labels": labels}, "spec": {}, "status": status}


def _pod(number: int, *, node: str | None = None) -> Mapping[str, Any]:
    """Shares, whole cards and none, as a cluster has them."""
    asks: Mapping[str, str] = {}
    match number % 5:
        case 0:
            asks = {_CORE: str(10 + number % 80), _MEMORY: "4"}
        case 1 | 2:
            asks = {_WHOLE: "1"}
        case 3 if node is None:
            asks = {_WHOLE: "4"}
        case _:
            pass
    amounts = {"cpu": "2", "memory": "8Gi", **asks}
    container = {
        "name": "main", "image": "registry.example.org/team/train:2026.11", "command": ["python", "-m", "train"],
        "env": [{"name": f"VARIABLE_{listed_number}", "value": "a value"} for listed_number in range(20)],
        "resources": {"limits": amounts, "requests": amounts}, "imagePullPolicy": "IfNotPresent",
    }  # fmt: skip
    metadata = {"name": f"pod-{number}", "namespace": _NAMESPACE, "labels": {"app": "train"}}
    spec: dict[str, Any] = {"containers": [container], "restartPolicy": "Never"}
    if node is None:
        metadata["uid"] = f"00000000-0000-4000-8000-{number:012}"  # type: ignore[assignment]
        return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
    return {"metadata": metadata, "spec": {**spec, "nodeName": node}}


def _question(number: int, *, objects: bool = False) -> bytes:
    names = [_name(listed_number) for listed_number in range(NODES)]
    question: dict[str, Any] = {"Pod": _pod(number), "Nodes": None, "NodeNames": names}
    if objects:
        question |= {
            "Nodes": {"metadata": {}, "items": [_node(listed_number) for listed_number in range(NODES)]},
            "NodeNames": None,
        }
    return json.dumps(question, separators=(",", ":")).encode()


def _pairs(port: int, count: int, *, objects: bool = False) -> list[float]:
    """Seconds of each filter with the prioritize that follows: of the nodes that fit, as kube-scheduler asks."""
    took: list[float] = []
    gc.disable()
    try:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for number in range(count):
                question = _question(number, objects=objects)
                began = time.perf_counter()
                for verb in ("predicates", "priorities"):
                    answer = _asked(connection, verb, question)
                took.append(time.perf_counter() - began)
                if len(json.loads(answer)) != NODES:
                    raise RuntimeError(answer[:1000].decode())
    finally:
        gc.enable()
    return took


def _ask(port: int, verb: str, question: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        return _asked(connection, verb, question)


def _asked(connection: socket.socket, verb: str, question: bytes) -> bytes:
    head = f"POST /scheduler/{verb} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {len(question)}\r\n\r\n".encode() + question)
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(2**18)
    head_read, _, body = received.partition(b"\r\n\r\n")
    if not head_read.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError((head_read + body)[:1000].decode())
    length = int(head_read.lower().split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
    chunks = [body]
    left = length - len(body)
    while left > 0:
        chunks.append(connection.recv(2**20))
        left -= len(chunks[-1])
    return b"".join(chunks)

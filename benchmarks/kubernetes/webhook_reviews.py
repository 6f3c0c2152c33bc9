"""Reviews of pods over TLS at a steady 200 a second, answered by one webhook process on one core.

Reviews are sent when they are due, whether earlier ones were answered or not, and their time counts from when they were
due. Maps are the seed's five lines, and 6,000 lines (as large as an annotation may well be). The client has the
other core. The peer, a POST that does nothing, is asked as often, on the same core, in turns.
"""

import asyncio
import gc
import json
import os
import ssl
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import uvloop

from benchmarks.measuring.do_nothing import POST, do_nothing
from benchmarks.measuring.figures import Figure
from benchmarks.measuring.load import post
from benchmarks.measuring.references import against
from tests.programs.webhook_process import admission_review, new_pair, trusting, webhook_process, write_pair

PER_S = 200
SECONDS = 10
ROUNDS = 5
CONNECTIONS = 16
ENTRIES = 6000
TARGET = 5.0
_SEED = "0=node1:0,1\n1=node2:2\n2=node3:0,1,2\n3=node4:3\n4=node4:3\n"
_NAME = "the-name-of-a-pod"


def measure() -> list[Figure]:
    """A figure for each size of map."""
    own = os.sched_getaffinity(0)
    cores = sorted(own)
    large = "".join(f"{index}=node{index % 750}:{index % 8}\n" for index in range(ENTRIES))
    pair = new_pair()
    with tempfile.TemporaryDirectory() as home:
        write_pair(pair, Path(home))
        with webhook_process(Path(home)) as webhook, do_nothing() as bare:
            served = psutil.Process(webhook.process.pid)
            asked = _Peer(webhook.port, trusting(pair), b'"patch"')
            idle = _Peer(int(bare.address.rpartition(":")[2]), None, b"queued")
            for process in (served, psutil.Process(bare.pid)):
                for thread in process.threads():
                    os.sched_setaffinity(thread.id, {cores[0]})
            os.sched_setaffinity(0, set(cores[1:]) or own)
            try:
                return [
                    _figure(name, body, asked, idle, served)
                    for name, body in (("5 entries", _body(_SEED, 5)), (f"{ENTRIES} entries", _body(large, ENTRIES)))
                ]
            finally:
                os.sched_setaffinity(0, own)


@dataclass(frozen=True, slots=True)
class _Peer:
    """A server on loopback, with TLS or without, and what its every answer has in it."""

    port: int
    context: ssl.SSLContext | None
    answers: bytes


def _figure(name: str, body: "_Body", asked: _Peer, idle: _Peer, served: psutil.Process) -> Figure:
    uvloop.run(_round(body.of, asked, PER_S))  # one second that isn't counted: connections, the map
    uvloop.run(_round(_nothing, idle, PER_S))
    worst, middle, bare_worst = [], [], []
    before = served.cpu_times()
    gc.disable()
    try:
        for _ in range(ROUNDS):
            took = sorted(uvloop.run(_round(body.of, asked, PER_S * SECONDS)))
            worst.append(took[int(len(took) * 0.99)] * 1000)
            middle.append(took[len(took) // 2] * 1000)
            gc.collect()
            bare = sorted(uvloop.run(_round(_nothing, idle, PER_S * SECONDS)))
            bare_worst.append(bare[int(len(bare) * 0.99)] * 1000)
            gc.collect()
    finally:
        gc.enable()
    after = served.cpu_times()
    each = (after.user + after.system - before.user - before.system) * 1000 / (ROUNDS * PER_S * SECONDS)
    detail = (
        f"p50 {statistics.median(middle):.2g} ms; the webhook takes {each:.2g} ms of its core for a review of"
        f" {len(body.of(0)) // 1024} KiB, {served.memory_info().rss // 2**20} MiB of memory"
    )
    told = f"webhook review, p99 at {PER_S}/s on one core, a map of {name}"
    return against(told, worst, bare_worst, TARGET, unit=" ms", of=f"{POST}, p99", detail=detail)


class _Body:
    """A review of another pod each time."""

    def __init__(self, review: dict[str, Any], indices: int) -> None:
        self._head, self._middle, self._tail = json.dumps(review).split(_NAME)
        self._indices = indices

    def of(self, number: int) -> bytes:
        """The review of a pod of which there is one."""
        name = f"worker-{number % self._indices}"
        content = f"{self._head}{number}{self._middle}{name}{self._tail}".encode()
        head = (
            f"POST /mutate?timeout=3s HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        return head.encode() + content


def _body(text: str, indices: int) -> _Body:
    """A pod of two containers with what people and controllers put into one."""
    container = {
        "name": "train",
        "image": "registry.example.org/team/train:2026.11",
        "command": ["python", "-m", "train", "--config", "/etc/train/config.yaml"],
        "env": [{"name": f"VARIABLE_{number}", "value": "a value"} for number in range(20)],
        "resources": {"limits": {"cpu": "8", "memory": "64Gi"}, "requests": {"cpu": "8", "memory": "64Gi"}},
        "volumeMounts": [{"name": f"volume-{number}", "mountPath": f"/data/{number}"} for number in range(5)],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "worker", "uid": "u", "controller": True}
    pod = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": _NAME,
            "generateName": "worker-",
            "namespace": "default",
            "creationTimestamp": None,
            "labels": {"app": "worker"},
            "annotations": {"gpu-scheduling-map": text},
            "ownerReferences": [owner],
            "managedFields": [{"manager": "m", "fieldsV1": {f"f:field{number}": {} for number in range(60)}}],
        },
        "spec": {
            "schedulerName": "gpu-scheduler",
            "containers": [container, {**container, "name": "sidecar"}],
            "volumes": [{"name": f"volume-{number}", "emptyDir": {}} for number in range(5)],
            "restartPolicy": "Always",
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        },
        "status": {},
    }
    return _Body(admission_review(pod, uid=_NAME), indices)


def _nothing(_number: int) -> bytes:
    return post("http://webhook", "/v1/jobs", b"{}", "none")


async def _round(request_of: Callable[[int], bytes], peer: _Peer, count: int) -> list[float]:
    """Seconds from when each request was due to its answer."""
    opened = [
        await asyncio.open_connection(
            "127.0.0.1", peer.port, ssl=peer.context, server_hostname="127.0.0.1" if peer.context else None
        )
        for _ in range(CONNECTIONS)
    ]
    took: list[float] = []
    requests = [request_of(number) for number in range(min(count, 500))]
    began = time.perf_counter() + 0.05

    async def ask(first: int) -> None:
        reader, writer = opened[first]
        for number in range(first, count, CONNECTIONS):
            due = began + number / PER_S
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            writer.write(requests[number % len(requests)])
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
            answer = await reader.readexactly(length)
            took.append(time.perf_counter() - due)
            if peer.answers not in answer:
                raise RuntimeError(answer.decode(errors="replace"))

    try:
        await asyncio.gather(*(ask(first) for first in range(CONNECTIONS)))
    finally:
        for _, writer in opened:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for _, writer in opened), return_exceptions=True)
    return took

"""From REST to pods on their nodes, on a real API server, beside bare pods created there by the same client.

API service and processor run in processes of their own on a durable database; nothing is paced. A job is bound when its
pod, which names its node, exists. In each round bare pods and jobs take turns on the same server, each after one that
is not counted. Beside them it is told how fast the same client creates pods such as jobs have: what is between that
and bare pods is the API server's work on their fields. No kubelet is about: pods stay Pending, or are said to run.
"""

import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import uvloop

from benchmarks.api_process import api_process
from benchmarks.databases import database
from benchmarks.figures import Figure
from benchmarks.kubernetes_cluster import (
    ASSETS,
    GPUS_PER_NODE,
    add_inventory,
    add_nodes,
    ask,
    at_once,
    bound,
    processor,
    real_api_server,
    remove_pods,
)
from benchmarks.load import post
from reservation_core.adapters.kubernetes.transport import MERGE_PATCH
from tests.kubernetes.api_server import ApiServer, make_namespace
from tests.kubernetes.emulated_store import stamp, utc_now
from tests.kubernetes.pod_bodies import running

NODES = 200
JOBS = 1000
ROUNDS = 5
PARALLEL = 64
CONNECTIONS = 32
RUNNING = 5000
RELISTS = 5
_BODY = json.dumps(
    {"name": "train", "gpus": 1, "gpu_type": "h100", "duration": 3600, "workload": {"command": ["python", "train.py"]}}
).encode()


def measure() -> list[Figure]:
    """Empty, and said so, where there is no API server to measure on."""
    if not os.environ.get(ASSETS):
        print(f"kubernetes_binding: SKIPPED: set {ASSETS} to a folder with kube-apiserver and etcd to measure it")
        return []
    with tempfile.TemporaryDirectory() as home, real_api_server() as server:
        uvloop.run(add_nodes(server, NODES))
        turns = [_bare, _jobs, _alike]
        rates: dict[Callable[[ApiServer, Path, int], float], list[float]] = {turn: [] for turn in turns}
        for number in range(ROUNDS):
            for turn in turns if number % 2 == 0 else reversed(turns):
                rates[turn].append(turn(server, Path(home), number))
        ratios = [jobs / bare for jobs, bare in zip(rates[_jobs], rates[_bare], strict=True)]
        jobs, bare, alike = (statistics.median(rates[turn]) for turn in (_jobs, _bare, _alike))
        detail = (
            f"jobs {jobs:.0f}/s, bare pods {bare:.0f}/s, pods such as jobs have by the same client {alike:.0f}/s; "
            f"{JOBS} of each on {NODES} nodes a round"
        )
        name = f"jobs bound ÷ bare pods created with nodeName, {PARALLEL} at once"
        binding = Figure(name, "x", ratios, 0.6, at_least=True, detail=detail)
        return [binding, *_at_rest(server, Path(home))]


def _bare(server: ApiServer, home: Path, number: int) -> float:
    """Bare pods a second."""
    del home
    return _created(server, "bare", number)


def _alike(server: ApiServer, home: Path, number: int) -> float:
    """Pods such as jobs have a second, by the client alone."""
    del home
    return _created(server, "alike", number)


def _created(server: ApiServer, form: str, number: int) -> float:
    namespace = f"{form}-{number}"
    uvloop.run(make_namespace(server, namespace))
    [seconds] = ask(form, server.kubeconfig, namespace, NODES, JOBS, PARALLEL)
    uvloop.run(remove_pods(server, namespace))
    return JOBS / seconds


def _jobs(server: ApiServer, home: Path, number: int) -> float:
    """Jobs bound a second, from the first submit to the last pod."""
    namespace = f"jobs-{number}"
    with database() as url:
        uvloop.run(add_inventory(server, url, namespace, home))
        with processor(server, url, namespace, home), api_process("durable", url, home) as (address, token):
            uvloop.run(_submit_until_bound(server, namespace, address, token, 1))
            seconds = uvloop.run(_submit_until_bound(server, namespace, address, token, JOBS, already=1))
    uvloop.run(remove_pods(server, namespace))
    return JOBS / seconds


async def _submit_until_bound(
    server: ApiServer, namespace: str, address: str, token: str, jobs: int, already: int = 0
) -> float:
    begun = time.monotonic()
    _, last = await asyncio.gather(_submit(address, token, jobs), bound(server, namespace, already + jobs))
    return last - begun


async def _submit(address: str, token: str, jobs: int) -> None:
    """So many POSTs over a few connections, each after the answer to the one before."""
    parts = urlsplit(address)
    request = post(address, "/v1/jobs", _BODY, token)
    left = iter(range(jobs))

    async def connection() -> None:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        for _ in left:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            if head.split(b" ", 2)[1] != b"202":
                raise RuntimeError(f"not accepted: {head.decode()}")
            await reader.readexactly(int(head.lower().split(b"content-length:", 1)[1].split(b"\r\n", 1)[0]))
        writer.close()

    await asyncio.gather(*(connection() for _ in range(CONNECTIONS)))


def _at_rest(server: ApiServer, home: Path) -> list[Figure]:
    """The processor's memory with many running pods, and how long listing them takes."""
    namespace = "running"
    uvloop.run(add_nodes(server, -(-RUNNING // GPUS_PER_NODE)))
    with database() as url:
        uvloop.run(add_inventory(server, url, namespace, home))
        with (
            processor(server, url, namespace, home) as process,
            api_process("durable", url, home) as (address, token),
        ):
            uvloop.run(_submit_until_bound(server, namespace, address, token, RUNNING))
            uvloop.run(_let_all_run(server, namespace))
            _all_running(address, token)
            relists = ask("relist", server.kubeconfig, namespace, RELISTS)
            memory = [process.memory_full_info().pss / 1e6]
    uvloop.run(remove_pods(server, namespace))
    return [
        Figure(f"memory of the processor with {RUNNING} running pods (PSS)", " MB", memory, 300, at_least=False),
        Figure(f"listing {RUNNING} running pods anew", " s", relists, 2, at_least=False),
    ]


async def _let_all_run(server: ApiServer, namespace: str) -> None:
    """Say of every pod that it runs, as its kubelet would."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    async with server.client() as client:
        pods = (await client.call("GET", path))["items"]

        async def run(number: int) -> None:
            pod = pods[number]
            status = running(pod, stamp(utc_now()))
            where = f"{path}/{pod['metadata']['name']}/status"
            await client.call("PATCH", where, {"status": status}, content_type=MERGE_PATCH)

        await at_once(len(pods), run)


def _all_running(address: str, token: str) -> None:
    """Wait until the ledger has all of them running."""
    import httpx  # noqa: PLC0415 -- only here

    deadline = time.monotonic() + 300
    with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {token}"}, trust_env=False) as http:
        while True:
            left = http.get("/v1/jobs", params={"status": "starting", "limit": 1}).raise_for_status().json()["items"]
            if not left:
                return
            if time.monotonic() > deadline:
                raise RuntimeError("not all jobs run")
            time.sleep(0.2)

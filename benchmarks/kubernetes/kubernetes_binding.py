"""From REST to pods on their nodes, on a real API server, beside bare pods created there by the same client.

API service and processor run in processes of their own on a durable database; nothing is paced. A job is bound when its
pod, which names its node, exists. In each round bare pods and jobs take turns on the same server, each after so many
that are not counted: connections and statements of both are known by then. The target bounds the whole way, from the
first submit to the last pod. Told beside it: how fast jobs that have been submitted before are bound, from the first
pod to the last; how fast the same client creates pods such as jobs have (what is between that and bare pods is the API
server's work on their fields); and the processor time of each process, which shows the same ratio where the machine has
other work, too. No kubelet is about: pods stay Pending, or are said to run.
"""

import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import uvloop

from benchmarks.kubernetes.kubernetes_cluster import (
    ASSETS,
    GPUS_PER_NODE,
    add_inventory,
    add_nodes,
    ask,
    at_once,
    bound,
    bound_a_second,
    processor,
    real_api_server,
    remove_pods,
)
from benchmarks.measuring.api_process import api_process
from benchmarks.measuring.cpu_times import CLIENT, cpu_times, spent
from benchmarks.measuring.databases import database
from benchmarks.measuring.do_nothing import SERVER, do_nothing
from benchmarks.measuring.figures import Figure
from benchmarks.measuring.load import post
from benchmarks.measuring.references import LOOP, against, loop_ms
from reservation_core.adapters.kubernetes.api_server.retries import MERGE_PATCH
from tests.kubernetes.api_server import ApiServer, make_namespace
from tests.kubernetes.emulated.store import stamp, utc_now
from tests.kubernetes.node.pod_bodies import running

NODES = 200
JOBS = 1000
ROUNDS = 5
PARALLEL = 64
WARM = 128
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
        turns = [_bare, _jobs, _submitted_before, _alike]
        seen: dict[_Turn, list[_Seen]] = {turn: [] for turn in turns}
        for number in range(ROUNDS):
            for turn in turns if number % 2 == 0 else reversed(turns):
                seen[turn].append(turn(server, Path(home), number))
        ratios = [jobs.rate / bare.rate for jobs, bare in zip(seen[_jobs], seen[_bare], strict=True)]
        name = f"jobs bound ÷ bare pods created with nodeName, {PARALLEL} at once"
        binding = Figure(name, "x", ratios, 0.6, at_least=True, detail=_detail(seen))
        return [binding, *_at_rest(server, Path(home))]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one turn showed: pods a second, and milliseconds of processor time for each, by kind of process."""

    rate: float
    spent: Mapping[str, float]


_Turn = Callable[[ApiServer, Path, int], _Seen]


def _detail(seen: Mapping[_Turn, Sequence[_Seen]]) -> str:
    rate = {turn: statistics.median(pacing.rate for pacing in seen[turn]) for turn in seen}
    work = [
        sum(bare.spent.values()) / sum(jobs.spent.values()) for bare, jobs in zip(seen[_bare], seen[_jobs], strict=True)
    ]
    return (
        f"submitted and bound {rate[_jobs]:.0f}/s; submitted before and bound {rate[_submitted_before]:.0f}/s; bare"
        f" pods {rate[_bare]:.0f}/s; pods such as jobs have by the same client {rate[_alike]:.0f}/s; {JOBS} of each on"
        f" {NODES} nodes a round; ms of processor time for a bare pod: {_times(seen[_bare])}; for one such as jobs"
        f" have: {_times(seen[_alike])}; for a job: {_times(seen[_jobs])}; a bare pod's ÷ a job's:"
        f" {statistics.median(work):.3g}"
    )


def _times(turns: Sequence[_Seen]) -> str:
    kinds = sorted({kind for turn in turns for kind in turn.spent})
    times = {kind: statistics.median(turn.spent.get(kind, 0.0) for turn in turns) for kind in kinds}
    parts = ", ".join(f"{kind} {time:.2f}" for kind, time in times.items() if time >= 0.005)
    return f"{sum(times.values()):.2f} ({parts})"


def _bare(server: ApiServer, home: Path, number: int) -> _Seen:
    """Bare pods."""
    del home
    return _created(server, "bare", number)


def _alike(server: ApiServer, home: Path, number: int) -> _Seen:
    """Pods such as jobs have, by the client alone."""
    del home
    return _created(server, "alike", number)


def _created(server: ApiServer, form: str, number: int) -> _Seen:
    namespace = f"{form}-{number}"
    uvloop.run(make_namespace(server, namespace))
    before = cpu_times()
    seconds, work = ask(form, server.kubeconfig, namespace, NODES, JOBS, PARALLEL, WARM)
    # Of the client's only what it did for the pods that count: loading Python's modules is no part of it.
    times = {**spent(before, cpu_times(), WARM + JOBS), CLIENT: work * 1000 / JOBS}
    uvloop.run(remove_pods(server, namespace))
    return _Seen(JOBS / seconds, times)


def _jobs(server: ApiServer, home: Path, number: int) -> _Seen:
    """Jobs from the first submit to the last pod."""
    namespace = f"jobs-{number}"
    with database() as url:
        uvloop.run(add_inventory(server, url, namespace, home))
        with processor(server, url, namespace, home), api_process(url, home) as (address, token):
            uvloop.run(_submit_until_bound(server, namespace, address, token, WARM))
            before = cpu_times()
            seconds = uvloop.run(_submit_until_bound(server, namespace, address, token, JOBS, already=WARM))
            after = cpu_times()
    uvloop.run(remove_pods(server, namespace))
    return _Seen(JOBS / seconds, spent(before, after, JOBS))


def _submitted_before(server: ApiServer, home: Path, number: int) -> _Seen:
    """Jobs that were submitted while no processor ran, from the first pod that is seen to the last."""
    namespace = f"before-{number}"
    with database() as url:
        uvloop.run(add_inventory(server, url, namespace, home))
        with api_process(url, home) as (address, token):
            uvloop.run(_submit(address, token, JOBS))
        with processor(server, url, namespace, home):
            rate = uvloop.run(bound_a_second(server, namespace, JOBS))
    uvloop.run(remove_pods(server, namespace))
    return _Seen(rate, {})


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
            api_process(url, home) as (address, token),
        ):
            uvloop.run(_submit_until_bound(server, namespace, address, token, RUNNING))
            uvloop.run(_let_all_run(server, namespace))
            _all_running(address, token)
            relists = ask("relist", server.kubeconfig, namespace, RELISTS)
            memory = [process.memory_full_info().pss / 1e6]
    uvloop.run(remove_pods(server, namespace))
    loops = [loop_ms() / 1000] * len(relists)
    with do_nothing() as bare:
        bare_memory = [bare.memory_mb]
    name = f"memory of the processor with {RUNNING} running pods"
    return [
        against(name, memory, bare_memory, 7.5, unit=" MB (PSS)", of=SERVER),
        against(f"listing {RUNNING} running pods anew", relists, loops, 105, unit=" s", of=LOOP),
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

"""A real kube-scheduler that calls the extender for every pod with GPUs, against the same alone.

Three ways of calling: as the chart sets it up (the best node alone is told, and kube-scheduler binds), told all nodes
that would do and binding by itself (`--assume-at=filter`), and told all and binding through the extender. The same
configuration but for that, and that kube-scheduler looks at all nodes where it has an extender; on the same API server,
in turns: the ratio of pods a second, from the first that is bound to the last. Nothing without KUBEBUILDER_ASSETS.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, aclosing, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.kubernetes.kubernetes_cluster import ASSETS, add_nodes, at_once, real_api_server, remove_pods
from benchmarks.measuring.figures import Figure
from tests.kubernetes.api_server import ApiServer, make_namespace
from tests.kubernetes.real.kube_scheduler import kube_scheduler_of, started_kube_scheduler
from tests.programs.admission_process import scheduler_config
from tests.programs.ports import own_port

NODES = 200
PODS = 800
ROUNDS = 5
TARGET = 0.7
_PATIENCE_S = 180.0
_OLD_BINDS_S = 8.0
_SILENCE_S = 0.5
"""So much later than it was, the last bind is seen at worst."""


def measure() -> list[Figure]:
    """Pods a second with the extender, in parts of those without."""
    if not os.environ.get(ASSETS):
        print(f"    (no {ASSETS}: nothing to measure)")
        return []
    with real_api_server() as server, tempfile.TemporaryDirectory() as folder:
        program = kube_scheduler_of(server)
        if program is None:
            print(f"    ({ASSETS} has no kube-scheduler: nothing to measure)")
            return []
        asyncio.run(add_nodes(server, NODES))
        port = own_port()
        by_itself = "--assume-at=filter"
        ways: dict[str, tuple[list[str] | None, Path]] = {
            "alone": (None, scheduler_config(server, port, extended=False)),
            "as the chart sets it up": (
                [by_itself, "--candidates=best"], scheduler_config(server, port, shares_apart=True),
            ),
            "told all nodes": ([by_itself], scheduler_config(server, port, bind=False)),
            "told all nodes and binding through it": ([], scheduler_config(server, port)),
        }  # fmt: skip
        rates: dict[str, list[float]] = {name: [] for name in ways}
        _rate(server, program, port, Path(folder), "warm", *ways["alone"])
        for number in range(ROUNDS):
            for name, (options, config) in ways.items():
                namespace = f"round-{number}-{name.replace(' ', '-')}"
                rates[name].append(_rate(server, program, port, Path(folder), namespace, options, config))
    alone = rates.pop("alone")
    figures = []
    for name, found in rates.items():
        ratios = [with_it / without for with_it, without in zip(found, alone, strict=True)]
        detail = f"with it {_listed(found)}/s, alone {_listed(alone)}/s; {NODES} nodes, {PODS} pods"
        told = f"kube-scheduler with the extender, {name}, against alone"
        figures.append(Figure(told, "", ratios, TARGET, at_least=True, detail=detail))
    return figures


def _rate(
    server: ApiServer,
    program: Path,
    port: int,
    folder: Path,
    namespace: str,
    options: list[str] | None,
    config: Path,
) -> float:
    """Pods a second, with an extender of these options, or without any."""
    with ExitStack() as running:
        if options is not None:
            running.enter_context(_extender(server, port, folder, *options))
            time.sleep(_OLD_BINDS_S)  # what one before it may have asked for is waited for at its start
        asyncio.run(_create(server, namespace))
        running.enter_context(started_kube_scheduler(server, program, config))
        rate = asyncio.run(_bound_a_second(server, namespace))
    asyncio.run(remove_pods(server, namespace))
    return rate


@contextmanager
def _extender(server: ApiServer, port: int, folder: Path, *options: str) -> Iterator[None]:
    """gpu_admission as delivered, once it answers."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GPU_DEV_")}
    command = [
        sys.executable, "-m", "gpu_admission", "--kubeconfig", str(server.kubeconfig),
        "--address", f"127.0.0.1:{port}", "--pprofAddress", "", "--v", "0", *options,
    ]  # fmt: skip
    log = folder / "admission.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stderr=output)
    try:
        deadline = time.monotonic() + _PATIENCE_S
        while not _ready(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"gpu_admission did not begin: {log.read_text()[-3000:]}")
            time.sleep(0.1)
        yield
        if process.poll() is not None:
            raise RuntimeError(f"gpu_admission ended: {log.read_text()[-3000:]}")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


async def _create(server: ApiServer, namespace: str) -> None:
    await make_namespace(server, namespace)
    async with server.client() as client:

        async def create(number: int) -> None:
            await client.call("POST", f"/api/v1/namespaces/{namespace}/pods", dict(_pod(number)))

        await at_once(PODS, create)


def _pod(number: int) -> Mapping[str, Any]:
    container = {"name": "main", "image": "registry.test/w:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {"metadata": {"name": f"pod-{number}"}, "spec": {"containers": [container]}}


async def _bound_a_second(server: ApiServer, namespace: str) -> float:
    """Watched, not looked up: each look goes through all pods, at the cost of whoever takes longer.

    A watch may end at any time, and one that says nothing may have stopped: then the next begins, with what is bound
    already. Raises TimeoutError when not all are bound in `_PATIENCE_S`.
    """
    bound: set[str] = set()
    first = 0.0
    query = {"watch": "true", "resourceVersion": "0", "fieldSelector": "spec.nodeName!="}
    async with asyncio.timeout(_PATIENCE_S), server.client() as client:
        while True:
            async with aclosing(client.lines(f"/api/v1/namespaces/{namespace}/pods", **query)) as lines:
                while line := await _next_line(lines):
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        break
                    bound.add(event["object"]["metadata"]["name"])
                    first = first or time.monotonic()
                    if len(bound) == PODS:
                        return PODS / (time.monotonic() - first)


async def _next_line(lines: AsyncIterator[str]) -> str | None:
    """The next line of a watch; None when it has ended, or has been silent for a while."""
    try:
        async with asyncio.timeout(_SILENCE_S):
            return await anext(lines, None)
    except TimeoutError:
        return None


def _listed(rates: list[float]) -> str:
    return ", ".join(f"{rate:.0f}" for rate in rates)

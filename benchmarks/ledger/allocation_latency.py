"""From an acknowledged submit to its committed allocation, at 500 jobs a second, open loop, over real HTTP.

API service and processor run in processes of their own on a durable database; 8,000 cards have room for everybody. The
processor plans and commits as always; pods are not started, since no single machine starts 500 processes a second and
the figure ends at the allocation. Both ends are stamped with the machine's monotonic clock: the acknowledgement when
the client has read it, the allocation when its commit has returned. The peer is a POST that does nothing, at the same
rate over as many connections: from when a request was due to its answer.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import uvloop

from benchmarks.ledger.submit_throughput import BODY
from benchmarks.measuring.api_process import api_process
from benchmarks.measuring.databases import add_cluster, database
from benchmarks.measuring.do_nothing import POST, do_nothing
from benchmarks.measuring.figures import Figure
from benchmarks.measuring.load import post
from benchmarks.measuring.references import against
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.runtime.processes.garbage import calm_garbage_collector
from reservation_core.runtime.processes.logs import configure
from reservation_core.runtime.processes.shutdown import stop_on_signals
from reservation_core.runtime.settings.components import ProcessorSettings
from reservation_core.runtime.wiring import Runtime, open_runtime
from reservation_processor.leading import lead

RATE = 500
SECONDS = 5
ROUNDS = 3
CONNECTIONS = 32
TARGET = 3.0
_QUIET = {"resync_s": 3600, "start_allowance_s": 3600}


def measure() -> list[Figure]:
    """Rounds follow each other in one system; the p99 of each."""
    p99s: list[float] = []
    p50s: list[float] = []
    with tempfile.TemporaryDirectory() as home, database() as url:
        uvloop.run(add_cluster(url, nodes=1000, gpus_per_node=8))
        stamps = Path(home) / "allocated.json"
        processor = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.ledger.allocation_latency", url, home, str(stamps)],
            env={**os.environ, "GPU_DEV_LOG_LEVEL": "WARNING"},
        )
        try:
            with api_process(url, Path(home)) as (address, token), do_nothing() as bare:
                uvloop.run(_submit(address, token, seconds=1))  # warm
                uvloop.run(_submit(bare.address, "none", seconds=1))
                rounds, peers = [], []
                for _ in range(ROUNDS):
                    rounds.append(uvloop.run(_submit(address, token, seconds=SECONDS)))
                    peers.append(uvloop.run(_submit(bare.address, "none", seconds=SECONDS)))
                time.sleep(1)
        finally:
            processor.send_signal(signal.SIGTERM)
            processor.wait(30)
        allocated: dict[str, float] = json.loads(stamps.read_text())
    for answers in rounds:
        waits = sorted(max(0.0, allocated[answer.body["id"]] - answer.at) * 1000 for answer in answers)
        p99s.append(waits[int(len(waits) * 0.99)])
        p50s.append(waits[len(waits) // 2])
    bare_p99s = [sorted(answer.took_s * 1000 for answer in answers)[int(len(answers) * 0.99)] for answers in peers]
    detail = f"p50 {sorted(p50s)[ROUNDS // 2]:.1f} ms; {RATE * SECONDS} jobs a round"
    name = f"submit to allocation, p99 at {RATE} jobs/s"
    return [against(name, p99s, bare_p99s, TARGET, unit=" ms", of=f"{POST}, p99", detail=detail)]


@dataclass(frozen=True, slots=True)
class _Answer:
    """When an answer was read (monotonic), how long after its request was due, and what it says."""

    at: float
    took_s: float
    body: Mapping[str, Any]


async def _submit(address: str, token: str, *, seconds: float) -> list[_Answer]:
    """Send at a fixed rate whatever the answers do."""
    parts = urlsplit(address)
    request = post(address, "/v1/jobs", BODY, token)
    free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        free.put_nowait(await asyncio.open_connection(parts.hostname, parts.port))
    answers: list[_Answer] = []

    async def one(due: float) -> None:
        reader, writer = await free.get()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
        body = await reader.readexactly(length)
        at = time.monotonic()
        answers.append(_Answer(at, loop.time() - due, json.loads(body)))
        free.put_nowait((reader, writer))

    loop = asyncio.get_running_loop()
    started = loop.time()
    async with asyncio.TaskGroup() as group:
        for n in range(int(RATE * seconds)):
            due = started + n / RATE
            await asyncio.sleep(max(0.0, due - loop.time()))
            group.create_task(one(due))
    while not free.empty():
        free.get_nowait()[1].close()
    return answers


async def _process(url: str, home: Path, stamps: Path) -> None:
    settings = ProcessorSettings(home=home, local_gpus="h100:1", **cast("Any", _QUIET))
    configure(settings)
    stop = stop_on_signals()
    allocated: dict[str, float] = {}
    async with open_runtime(settings, url, application="bench-processor") as runtime:
        calm_garbage_collector(in_small_parts=True)  # as the processor does
        await lead(_stamping(runtime, allocated), settings, stop)
    stamps.write_text(json.dumps(allocated))


def _stamping(runtime: Runtime, allocated: dict[str, float]) -> Runtime:
    """The same runtime; it notes when each start's transaction has committed."""

    @asynccontextmanager
    async def unit_of_work(*, one_statement: bool = False) -> AsyncIterator[UnitOfWork]:
        started: list[str] = []
        async with runtime.uow(one_statement=one_statement) as uow:
            commit = uow.planning.commit

            async def noting(*args: Any) -> Any:
                outcome = await commit(*args)
                started.extend(outcome.started)
                return outcome

            uow.planning.commit = noting  # type: ignore[method-assign]
            yield uow
        at = time.monotonic()
        allocated.update(dict.fromkeys(started, at))

    return replace(runtime, uow=unit_of_work)


if __name__ == "__main__":
    database_url, home_folder, stamps_file = sys.argv[1:]
    uvloop.run(_process(database_url, Path(home_folder), Path(stamps_file)))

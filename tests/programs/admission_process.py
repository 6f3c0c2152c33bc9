"""gpu_admission as a process beside an API server, and the configuration of a kube-scheduler that calls it."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.kubernetes.api_server import ApiServer
from tests.waiting import eventually

PATIENCE_S = 120


@dataclass
class AdmissionProcess:
    """A gpu_admission that runs."""

    process: asyncio.subprocess.Process
    port: int
    output: list[str] = field(default_factory=list)

    async def get(self, path: str) -> tuple[int, str]:
        """Status and body."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
        head, _, body = answer.partition("\r\n\r\n")
        return int(head.split()[1]), body

    async def ready(self) -> bool:
        """Whether it answers that it is."""
        with suppress(ConnectionError):
            return (await self.get("/ready"))[0] == 200
        assert self.process.returncode is None, self.output
        return False


@asynccontextmanager
async def admission(
    server: ApiServer, port: int, *options: str, wait: bool = True, **variables: str
) -> AsyncIterator[AdmissionProcess]:
    """It runs, and is killed at the block's end. `variables` are settings: `QUOTA_NAME="…"`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GPU_DEV_")}
    environment |= {f"GPU_DEV_ADMISSION__{name}": value for name, value in variables.items()}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gpu_admission", "--kubeconfig", str(server.kubeconfig),
        "--address", f"127.0.0.1:{port}", "--pprofAddress", "", *options,
        stderr=asyncio.subprocess.PIPE, env=environment,
    )  # fmt: skip
    made = AdmissionProcess(process, port)
    collecting = asyncio.create_task(_collect(made))
    try:
        if wait:
            await eventually(made.ready, PATIENCE_S)
        yield made
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await collecting


async def _collect(made: AdmissionProcess) -> None:
    assert made.process.stderr is not None
    async for line in made.process.stderr:
        made.output.append(line.decode())


def scheduler_config(
    server: ApiServer,
    port: int,
    *,
    bind: bool = True,
    cached: bool = True,
    extended: bool = True,
    shares_apart: bool = False,
) -> Path:
    """A KubeSchedulerConfiguration whose extender is at this port; the same without one, unless `extended`.

    `shares_apart`: the extender is named twice, and only pods with shares are bound through it.
    """
    whole, shares = ("nvidia.com/gpu",), ("tencent.com/vcuda-core", "tencent.com/vcuda-memory")
    if shares_apart:
        extenders = [
            _extender(port, whole, bind=False, cached=cached),
            _extender(port, shares, bind=True, cached=cached),
        ]
    else:
        extenders = [_extender(port, (*whole, *shares), bind=bind, cached=cached)]
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(server.kubeconfig), "qps": 1000, "burst": 2000},
        "leaderElection": {"leaderElect": False},
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 2,
        "extenders": extenders if extended else [],
        **({"percentageOfNodesToScore": 100} if extended else {}),
    }
    binding = "shares-apart" if shares_apart else "binding-through-it" if bind else "binding-by-itself"
    file = server.folder / f"scheduler-{port}-{binding if extended else 'alone'}.json"
    file.write_text(json.dumps(config))
    return file


def _extender(port: int, resources: tuple[str, ...], *, bind: bool, cached: bool) -> dict[str, object]:
    return {
        "urlPrefix": f"http://127.0.0.1:{port}/scheduler",
        "filterVerb": "predicates",
        "prioritizeVerb": "priorities",
        "weight": 5,
        "nodeCacheCapable": cached,
        "httpTimeout": "15s",
        "managedResources": [{"name": name, "ignoredByScheduler": False} for name in resources],
        **({"bindVerb": "bind"} if bind else {}),
    }

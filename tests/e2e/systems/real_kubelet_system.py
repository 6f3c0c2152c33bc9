"""The chart's processes on a real API server with a real kubelet, each with its own account, and people's clients."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import psycopg
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from tests.integration.gpu_dev.sessions.conftest import Terminal
from tests.integration.ssh_gateway.ssh_clients import SshClient
from tests.kubernetes.api_client import MERGE, JsonObject
from tests.kubernetes.api_server import ApiServer, empty_namespace, make_namespace
from tests.kubernetes.manifests import apply, manifests
from tests.kubernetes.real.images import SERVER_IMAGE, TOOLS_IMAGE, WORKLOAD_IMAGE, missing_for_tools
from tests.kubernetes.real.kube_controller_manager import kube_controller_manager_of, started_controllers
from tests.kubernetes.real.kube_scheduler import kube_scheduler_of, started_kube_scheduler
from tests.kubernetes.real.kubelet import HOST, RealKubelet, missing_for_kubelet, started_kubelet
from tests.programs.ports import own_port
from tests.waiting import PATIENCE_S, eventually_sync

ROOT = Path(__file__).parents[3]
NODE = "gpu-node"
WORKLOADS, SYSTEM = "gpu-dev", "gpu-dev-system"
_STATUS = f"/api/v1/nodes/{NODE}/status"
_LABELS = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "4"}
_TOKEN = "gdt_" + "a" * 43


@dataclass
class RealKubeletSystem:
    """A running installation. `processes` are by their packages, `client` is the OpenSSH of a person who has a key."""

    server: ApiServer
    kubelet: RealKubelet
    database_url: str
    folder: Path
    url: str
    ssh_port: int
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """What the command line finds around it."""
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "HOME": str(self.folder),
            "GPU_DEV_SERVER": self.url,
            "GPU_DEV_TOKEN": _TOKEN,
            "TERM": "xterm-256color",
            "TZ": "UTC",
        }

    def gpu_dev(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run `gpu-dev` off a terminal to its end."""
        command = [sys.executable, "-m", "gpu_dev", *words]
        return subprocess.run(
            command, env=self.environment, input=stdin, capture_output=True, timeout=PATIENCE_S, check=False
        )

    @contextmanager
    def terminal(self, *words: str, command: tuple[str, ...] = ()) -> Iterator[Terminal]:
        """`gpu-dev`, or another command, in a terminal."""
        terminal = Terminal(self.environment, *words, command=command)
        try:
            yield terminal
        finally:
            terminal.close()

    @asynccontextmanager
    async def program(self, job: str, *command: str) -> AsyncIterator[ClientConnection]:
        """A program that has sent back a line of its input."""
        query = urlencode({"command": command}, doseq=True)
        address = f"{self.url.replace('http', 'ws')}/v1/jobs/{job}/exec?{query}"
        headers = {"Authorization": f"Bearer {_TOKEN}"}
        protocols = [Subprotocol("v5.channel.k8s.io")]
        async with connect(address, additional_headers=headers, subprotocols=protocols, proxy=None) as socket:
            await socket.send(b"\0line\n")
            await socket.recv()
            yield socket

    def session(self, *words: str, length: str = "30m") -> str:
        """Submit a session and wait until it runs; its id."""
        done = self.gpu_dev("submit", "--gpus", "1", "--for", length, *words)
        assert done.returncode == 0, done.stderr
        job = done.stdout.decode().strip()
        self.reaches(job, "running")
        return job

    def job(self, job: str) -> dict[str, Any]:
        """How it stands."""
        return json.loads(self.gpu_dev("show", job, "-o", "json").stdout)  # type: ignore[no-any-return]

    def reaches(self, job: str, *wanted: str) -> dict[str, Any]:
        """Wait until a job has one of these statuses."""

        def look() -> dict[str, Any] | None:
            found = self.job(job)
            return found if found["status"] in wanted else None

        found = eventually_sync(look)
        assert found is not None
        return found

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """What the database answers."""
        with psycopg.connect(self.database_url.replace("postgresql+asyncpg", "postgresql")) as connection:
            return connection.execute(statement.encode()).fetchall()

    def pods(self) -> list[JsonObject]:
        """The pods of all jobs."""
        return list(self.api("GET", f"/api/v1/namespaces/{WORKLOADS}/pods")["items"])

    def api(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> JsonObject:
        """One call to the API server, as its administrator."""

        async def call() -> JsonObject:
            async with self.server.client() as client:
                return await client.call(method, path, body, content_type=content_type)

        return asyncio.run(call())

    def give_gpus(self) -> None:
        """Say what a device plugin would have said of the node: a kubelet that is started anew knows of none."""
        gpus = {"nvidia.com/gpu": "4"}
        self.api("PATCH", _STATUS, {"status": {"capacity": gpus, "allocatable": gpus}}, MERGE)

    def look(self, *components: str) -> None:
        """Run CronJobs of the chart once."""
        for component in components or ("availability_updater", "reservation_expiry"):
            assert self._start(component).wait(PATIENCE_S) == 0, self.log(component)

    def log(self, component: str) -> str:
        """What a component wrote."""
        return (self.folder / f"{component}.log").read_text()

    def log_in(self) -> SshClient:
        """An OpenSSH whose key the gateway takes."""
        client = SshClient(self.folder / "ssh", self.ssh_port)
        done = self.gpu_dev("keys", "add", str(client.key.with_suffix(".pub")))
        assert done.returncode == 0, done.stderr
        return client

    def start(self, stack: ExitStack) -> None:
        """Start everything, and wait until it works. It is ended with the stack."""
        (self.folder / "token").write_text(_TOKEN)
        migrate = [sys.executable, "-m", "reservation_core.runtime.database", "migrate"]
        migrate += ["--admin-token-file", str(self.folder / "token")]
        subprocess.run(migrate, env=self._settings("api_service"), check=True, cwd=ROOT, capture_output=True)
        self.look("availability_updater")
        for component in ("reservation_processor", "api_service", "ssh_gateway"):
            self.processes[component] = self._start(component)
            stack.callback(self._end, component)
        eventually_sync(self._is_ready)

    def start_again(self, component: str) -> None:
        """Start a component that was killed, and wait until all work."""
        self.processes[component].wait(PATIENCE_S)
        self.processes[component] = self._start(component)
        eventually_sync(self._is_ready)

    def _is_ready(self) -> bool:
        for component, process in self.processes.items():
            assert process.poll() is None, self.log(component)
        try:
            ready = httpx.get(f"{self.url}/readyz", trust_env=False).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False
        return ready and "ssh_listening" in self.log("ssh_gateway")

    def _start(self, component: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{component}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", component], env=self._settings(component), cwd=ROOT, stdout=log, stderr=log
            )

    def _end(self, component: str) -> None:
        process = self.processes[component]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0, self.log(component)

    def _settings(self, component: str) -> Mapping[str, str]:
        account = component.replace("_", "-")
        token = asyncio.run(self.server.token_of(SYSTEM, account))
        given = {
            "cluster": "kubernetes",
            "database_url": self.database_url,
            "home": self.folder / "home",
            "listen": f"0.0.0.0:{self.url.rpartition(':')[2]}",
            "job_server": f"http://{HOST}:{self.url.rpartition(':')[2]}",
            "ssh__listen": f"127.0.0.1:{self.ssh_port}",
            "end_grace_s": 2,
            "kubernetes__kubeconfig": self.server.kubeconfig_with(token, account),
            "kubernetes__default_image": WORKLOAD_IMAGE,
            "kubernetes__session_tools_image": TOOLS_IMAGE,
            "kubernetes__files_image": SERVER_IMAGE,
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GPU_DEV_")}
        return kept | {f"GPU_DEV_{name.upper()}": str(value) for name, value in given.items()}


def missing_for_system() -> str:
    """What keeps such a system from running here; empty if nothing does."""
    missing = missing_for_kubelet() or missing_for_tools()
    for name in ("kube-scheduler", "kube-controller-manager"):
        if not missing and not (Path(os.environ["KUBEBUILDER_ASSETS"]) / name).is_file():
            missing = f"KUBEBUILDER_ASSETS lacks {name}"
    return missing


@contextmanager
def real_kubelet_system(server: ApiServer, database_url: str, folder: Path) -> Iterator[RealKubeletSystem]:
    """A system that is up on one node of four GPUs; nothing of it is left afterwards."""
    scheduler, controllers = kube_scheduler_of(server), kube_controller_manager_of(server)
    assert scheduler is not None
    assert controllers is not None
    with (
        started_controllers(server, controllers, "node-lifecycle-controller"),
        started_kube_scheduler(server, scheduler),
        started_kubelet(server, NODE) as kubelet,
        ExitStack() as stack,
    ):
        address = f"http://127.0.0.1:{own_port()}"
        system = RealKubeletSystem(server, kubelet, database_url, folder, address, own_port())
        asyncio.run(_install(server))
        system.api("PATCH", f"/api/v1/nodes/{NODE}", {"metadata": {"labels": _LABELS}}, MERGE)
        system.give_gpus()
        stack.callback(lambda: asyncio.run(empty_namespace(server, WORKLOADS)))
        system.start(stack)
        yield system


async def _install(server: ApiServer) -> None:
    async with server.client() as client:
        for _, document in manifests(enforcing=False):
            if document["kind"] != "DaemonSet":
                await apply(client, document)
        body = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
        await client.try_call("POST", "/apis/node.k8s.io/v1/runtimeclasses", body)
    await make_namespace(server, WORKLOADS)

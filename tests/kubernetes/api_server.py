"""An API server for tests, over real HTTP: the emulator, or a real one where `KUBEBUILDER_ASSETS` names its programs.

`KUBEBUILDER_ASSETS` is the Kubernetes ecosystem's own convention: a directory with `kube-apiserver` and `etcd`. Either
server is a process of its own that ends with the test process, however that one ends.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.kubernetes.api_client import ApiClient
from tests.kubernetes.kubeconfigs import write_kubeconfig
from tests.kubernetes.real.server import ADMIN_TOKEN, RealServer

_REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class ApiServer:
    """A running API server. `admin_token` may do everything; `ca` is the PEM to trust, None for plain HTTP."""

    url: str
    admin_token: str
    ca: bytes | None
    folder: Path
    process: RealServer | None = None

    @property
    def real(self) -> bool:
        """Whether this is a kube-apiserver."""
        return self.process is not None

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.kubeconfig_with(self.admin_token, "admin")

    def kubeconfig_with(self, token: str, name: str, *, url: str | None = None) -> Path:
        """A kubeconfig for another token, or through another address (a proxy's, which is plain HTTP)."""
        ca = self.process.ca_file if self.process is not None and url is None else None
        return write_kubeconfig(self.folder / f"{name}.kubeconfig", url or self.url, token, ca=ca)

    def client(self, token: str | None = None) -> ApiClient:
        """The test cluster's own client; needs a running event loop."""
        return ApiClient(self.url, token or self.admin_token, self.ca)

    async def token_of(self, namespace: str, service_account: str, *audiences: str) -> str:
        """A bearer token of a service account, which is created where it is missing; for the server, or for others.

        The emulator takes any token.
        """
        async with self.client() as client:
            path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
            await client.try_call("POST", path, {"metadata": {"name": service_account}})
            spec = {"audiences": list(audiences)} if audiences else {}
            request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
            answer = await client.call("POST", f"{path}/{service_account}/token", request)
            return str(answer["status"]["token"])

    async def forget_changes(self) -> None:
        """Answer 410 to watches from versions of before now. A real server is restarted for it, which takes seconds."""
        if self.process is not None:
            await asyncio.to_thread(self.process.restart)
            return
        async with self.client() as client:
            await client.call("POST", "/emulator/forget-changes")


@contextmanager
def started_api_server(folder: Path) -> Iterator[ApiServer]:
    """A server that keeps its files below `folder`, until the block's end."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets:
        process = RealServer(Path(assets), folder)
        try:
            yield ApiServer(process.url, ADMIN_TOKEN, process.ca, folder, process)
        finally:
            process.stop()
        return
    server = _start_emulator(folder)
    try:
        assert server.stdout is not None
        port = server.stdout.readline().decode().strip()
        if not port:
            said = (folder / "emulator.log").read_text()
            raise RuntimeError(f"The emulator did not start. It said: {said}")
        yield ApiServer(f"http://127.0.0.1:{port}", "emulated-admin", None, folder)
    finally:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.close()
        server.wait(timeout=90)
        server.stdout.close()


def _start_emulator(folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "emulator.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.kubernetes.emulated.emulator"],
            cwd=_REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )


async def make_namespace(server: ApiServer, name: str) -> None:
    """A namespace with the service account that a controller would have added; nothing where it is there."""
    async with server.client() as client:
        await client.try_call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        path = f"/api/v1/namespaces/{name}/serviceaccounts"
        await client.try_call("POST", path, {"metadata": {"name": "default"}})


async def empty_namespace(server: ApiServer, name: str) -> None:
    """Remove pods and services at once, without any kubelet's word."""
    async with server.client() as client:
        for plural in ("pods", "services"):
            path = f"/api/v1/namespaces/{name}/{plural}"
            for item in (await client.call("GET", path))["items"]:
                options = {"gracePeriodSeconds": 0}
                await client.try_call("DELETE", f"{path}/{item['metadata']['name']}", options)

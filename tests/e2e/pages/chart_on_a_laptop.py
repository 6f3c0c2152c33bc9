"""The chart gpu-dev-server with a laptop's values: its objects in a test cluster, and the server with its settings.

Its images are not built: one process on this machine stands for the pods of the control plane.
"""

import asyncio
import base64
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chart.rendering import CHARTS, JsonObject, documents_of, one
from tests.e2e.systems.kubernetes_system import QUICK
from tests.e2e.systems.system_process import ROOT, SystemProcess
from tests.kubernetes.api_server import ApiServer, empty_namespace, make_namespace
from tests.read_yaml import read_yaml

JOBS = "gpu-dev"
_COLLECTIONS = {
    "ConfigMap": "configmaps",
    "LimitRange": "limitranges",
    "PriorityClass": "priorityclasses",
    "ResourceQuota": "resourcequotas",
    "Secret": "secrets",
}


def chart_for_a_laptop() -> list[JsonObject]:
    """Its objects, as `helm install gpu-dev … -f values-local.yaml` makes them."""
    values = read_yaml((CHARTS / "gpu-dev-server" / "values-local.yaml").read_text())
    return documents_of(CHARTS / "gpu-dev-server", values, name="gpu-dev", namespace="default")


@contextmanager
def installed(server: ApiServer, chart: list[JsonObject]) -> Iterator[None]:
    """The namespaces, and in them whatever pods of jobs and a person at `kubectl` meet; gone after the block."""
    there = [document for document in chart if document["kind"] in _COLLECTIONS]
    asyncio.run(_each(server, "POST", there))
    try:
        yield
    finally:
        asyncio.run(empty_namespace(server, JOBS))
        asyncio.run(_each(server, "DELETE", there))


async def _each(server: ApiServer, method: str, documents: list[JsonObject]) -> None:
    if method == "POST":
        for name in (JOBS, "gpu-controlplane"):
            await make_namespace(server, name)
    async with server.client() as client:
        for document in documents:
            version, namespace = document["apiVersion"], document["metadata"].get("namespace")
            root = f"/apis/{version}" if "/" in version else f"/api/{version}"
            scope = f"/namespaces/{namespace}" if namespace else ""
            path = f"{root}{scope}/{_COLLECTIONS[document['kind']]}"
            if method == "POST":
                await client.call(method, path, document)
            else:
                await client.try_call(method, f"{path}/{document['metadata']['name']}")


@contextmanager
def served_by_chart(
    server: ApiServer, chart: list[JsonObject], database_url: str, folder: Path
) -> Iterator[SystemProcess]:
    """A server with the settings of the chart's processor and the token of its first administrator."""
    token = base64.b64decode(one(chart, "Secret", "gpu-dev-admin-token")["data"]["token"]).decode()
    defaults = folder / "pod-defaults.yaml"
    defaults.write_text(one(chart, "ConfigMap", "gpu-dev-configuration")["data"]["pod-defaults.yaml"])
    home = folder / "control plane"
    home.mkdir(mode=0o700)
    (home / "admin-token").touch(mode=0o600)
    (home / "admin-token").write_text(f"{token}\n")
    settings = {
        **QUICK,
        **_settings(chart),
        "GPU_DEV_DATABASE_URL": database_url,
        "GPU_DEV_KUBERNETES__KUBECONFIG": str(server.kubeconfig),
        "GPU_DEV_KUBERNETES__POD_DEFAULTS": str(defaults),
    }
    migrating = ["-m", "reservation_core.runtime.database", "migrate", "--admin-token-file", str(home / "admin-token")]
    environment = {**os.environ, "GPU_DEV_DATABASE_URL": database_url}
    subprocess.run([sys.executable, *migrating], env=environment, cwd=ROOT, check=True, capture_output=True)
    system = SystemProcess(home, forked=True, **settings)
    try:
        system.start().close()
        yield system
        assert system.end(signal.SIGTERM) == 0, system.log[-4000:]
    finally:
        system.clear()


def _settings(chart: list[JsonObject]) -> dict[str, str]:
    """Variables of the processor's container that say how jobs are run."""
    (container,) = one(chart, "Deployment", "reservation-processor")["spec"]["template"]["spec"]["containers"]
    variables = {variable["name"]: variable.get("value", "") for variable in container["env"]}
    wanted = ("GPU_DEV_CLUSTER", "GPU_DEV_GPU__", "GPU_DEV_KUBERNETES__")
    return {name: value for name, value in variables.items() if name.startswith(wanted)}

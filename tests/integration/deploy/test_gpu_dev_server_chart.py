"""The chart gpu-dev-server on a real API server: everything of it is taken, passwords and tokens stay, data stay."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

from tests.chart.rendering import CHARTS, VERSION
from tests.kubernetes.api_client import MERGE, ApiClient, JsonObject
from tests.kubernetes.api_server import ApiServer
from tests.read_yaml import read_yaml

pytestmark = pytest.mark.timeout(600)


def values(name: str) -> dict[str, Any]:
    """With namespaces of their own: nobody here empties those that are deleted."""
    return {
        "global": {"prefix": name},
        "namespaces": {"controlplane": f"{name}-controlplane", "workloads": f"{name}-jobs"},
        **MORE,
    }


MORE: dict[str, Any] = {
    "nodeAgent": {"enabled": True, "runtimeClassName": ""},
    "reservationExpiry": {"enforcement": {"enabled": True}},
    "sshGateway": {"enabled": True, "service": {"type": "LoadBalancer"}},
    "apiService": {
        "ingress": {"enabled": True, "host": "gpus.test"},
        "apps": {"host": "apps.gpus.test", "tlsSecret": "apps"},
        "signIn": {"kubernetes": True},
    },
}


async def kept(client: ApiClient, name: str) -> list[dict[str, str]]:
    """What may never change by itself."""
    secrets = f"/api/v1/namespaces/{name}-controlplane/secrets/{name}"
    return [(await client.call("GET", f"{secrets}-{word}"))["data"] for word in ("postgres", "admin-token")]


async def test_passwords_and_namespaces_outlive_upgrades_and_the_release(api_server: ApiServer) -> None:
    if not api_server.real:
        pytest.skip("the emulator knows too few kinds; KUBEBUILDER_ASSETS names a real one")
    chart = helm_python.Chart.load(str(CHARTS / "gpu-dev-server"))
    no_hook = {**values("kept"), "stopped": True}  # nobody here runs the job that goes before an upgrade
    with helm_python.Config(kubeconfig_path=str(api_server.kubeconfig), namespace="default") as helm:
        async with api_server.client() as client:
            await asyncio.to_thread(helm.install, chart, "kept", values("kept"))
            try:
                before = await kept(client, "kept")
                assert all(value for data in before for value in data.values())
                await asyncio.to_thread(helm.upgrade, chart, "kept", no_hook)
                assert await kept(client, "kept") == before
                chosen = {**no_hook, "postgres": {"auth": {"password": "chosen"}}}
                await asyncio.to_thread(helm.upgrade, chart, "kept", chosen)
                (database, token) = await kept(client, "kept")
                assert database["password"] != before[0]["password"]
                assert database["replication-password"] == before[0]["replication-password"]
                assert token == before[1]
            finally:
                await asyncio.to_thread(helm.uninstall, "kept")
            assert await kept(client, "kept") == [database, token]
            for name in values("kept")["namespaces"].values():
                assert (await client.call("GET", f"/api/v1/namespaces/{name}"))["status"]["phase"] == "Active"
            # Installing again finds it all.
            await asyncio.to_thread(helm.install, chart, "kept", values("kept"))
            try:
                assert await kept(client, "kept") == [database, token]
            finally:
                await asyncio.to_thread(helm.uninstall, "kept")
                for name in values("kept")["namespaces"].values():
                    await client.try_call("DELETE", f"/api/v1/namespaces/{name}")


NAME = "upgraded"


def before(folder: Path) -> helm_python.Chart:
    """The chart as its version before this one, which differs in its images."""
    shutil.copytree(CHARTS / "gpu-dev-server", folder / "gpu-dev-server")
    file = folder / "gpu-dev-server" / "Chart.yaml"
    chart = read_yaml(file.read_text())
    file.write_text(yaml.safe_dump({**chart, "version": "0.0.9", "appVersion": "0.0.9"}))
    return helm_python.Chart.load(str(file.parent))


@asynccontextmanager
async def migrations_end(client: ApiClient, condition: str) -> AsyncIterator[list[str]]:
    """Jobs that go before an upgrade end so; their images are given out."""
    seen: list[str] = []
    jobs = f"/apis/batch/v1/namespaces/{NAME}-controlplane/jobs"

    async def end(job: JsonObject) -> None:
        at = job["metadata"]["creationTimestamp"]
        said = {"status": "True", "lastTransitionTime": at}
        status: JsonObject = {"startTime": at}
        if condition == "Complete":
            status |= {"completionTime": at, "succeeded": 1}
            status["conditions"] = [{"type": "SuccessCriteriaMet", **said}, {"type": "Complete", **said}]
        else:
            status["conditions"] = [{"type": "FailureTarget", **said}, {"type": "Failed", **said}]
        await client.call("PATCH", f"{jobs}/{job['metadata']['name']}/status", {"status": status}, content_type=MERGE)
        seen.append(job["spec"]["template"]["spec"]["containers"][0]["image"])

    async def follow() -> None:
        while True:
            for job in (await client.call("GET", jobs))["items"]:
                hook = "helm.sh/hook" in (job["metadata"].get("annotations") or {})
                if hook and not job["status"].get("conditions"):
                    await end(job)
            await asyncio.sleep(0.1)

    following = asyncio.create_task(follow())
    try:
        yield seen
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def shape(client: ApiClient) -> dict[str, tuple[str, int, list[str]]]:
    """Each workload: which object it is, how often it was changed, and its images."""
    found = {}
    for kind in ("deployments", "statefulsets"):
        for manifest in (await client.call("GET", f"/apis/apps/v1/namespaces/{NAME}-controlplane/{kind}"))["items"]:
            images = [container["image"] for container in manifest["spec"]["template"]["spec"]["containers"]]
            found[manifest["metadata"]["name"]] = (
                manifest["metadata"]["uid"],
                manifest["metadata"]["generation"],
                images,
            )
    return found


async def test_an_upgrade_migrates_first_touches_no_database_and_stops_where_the_migration_fails(
    api_server: ApiServer, tmp_path: Path
) -> None:
    if not api_server.real:
        pytest.skip("the emulator knows too few kinds; KUBEBUILDER_ASSETS names a real one")
    chart = helm_python.Chart.load(str(CHARTS / "gpu-dev-server"))
    with helm_python.Config(kubeconfig_path=str(api_server.kubeconfig), namespace="default") as helm:
        async with api_server.client() as client:
            await asyncio.to_thread(helm.install, before(tmp_path), NAME, values(NAME))
            try:
                secrets, installed = await kept(client, NAME), await shape(client)
                async with migrations_end(client, "Failed"):
                    with pytest.raises(helm_python.HelmError):
                        await asyncio.to_thread(helm.upgrade, chart, NAME, values(NAME))
                assert await shape(client) == installed
                async with migrations_end(client, "Complete") as ran:
                    await asyncio.to_thread(helm.upgrade, chart, NAME, values(NAME))
                assert ran == [f"api-service:{VERSION}"]
                upgraded = await shape(client)
                assert upgraded["api-service"][2] == [f"api-service:{VERSION}"]
                untouched = {"postgres-primary", "postgres-replica", "registry-cache-ghcr", "registry-cache-dockerhub"}
                assert {name for name in installed if upgraded[name] == installed[name]} == untouched
                assert {name: state[0] for name, state in upgraded.items()} == {
                    name: state[0] for name, state in installed.items()
                }
                assert await kept(client, NAME) == secrets
            finally:
                await asyncio.to_thread(helm.uninstall, NAME)
                for name in values(NAME)["namespaces"].values():
                    await client.try_call("DELETE", f"/api/v1/namespaces/{name}")

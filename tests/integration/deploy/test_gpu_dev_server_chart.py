"""The chart gpu-dev-server on a real API server: everything of it is taken, passwords and tokens stay, data stay."""

import asyncio
from typing import Any

import helm_python
import pytest

from tests.chart.rendering import CHARTS
from tests.kubernetes.api_client import ApiClient
from tests.kubernetes.api_server import ApiServer

pytestmark = pytest.mark.timeout(600)

CONTROLPLANE, WORKLOADS = "chart-controlplane", "chart-jobs"
SECRETS = f"/api/v1/namespaces/{CONTROLPLANE}/secrets"
VALUES: dict[str, Any] = {
    "global": {"prefix": "chart-test"},
    "namespaces": {"controlplane": CONTROLPLANE, "workloads": WORKLOADS},
    "nodeAgent": {"enabled": True, "runtimeClassName": ""},
    "reservationExpiry": {"enforcement": {"enabled": True}},
    "apiService": {"ingress": {"enabled": True, "host": "gpus.test"}, "signIn": {"kubernetes": True}},
}


async def kept(client: ApiClient) -> list[dict[str, str]]:
    """What may never change by itself."""
    names = ("chart-test-postgres", "chart-test-admin-token")
    return [(await client.call("GET", f"{SECRETS}/{name}"))["data"] for name in names]


async def test_passwords_and_namespaces_outlive_upgrades_and_the_release(api_server: ApiServer) -> None:
    if not api_server.real:
        pytest.skip("the emulator knows too few kinds; KUBEBUILDER_ASSETS names a real one")
    chart = helm_python.Chart.load(str(CHARTS / "gpu-dev-server"))
    no_hook = {**VALUES, "stopped": True}  # nobody here runs the job that goes before an upgrade
    with helm_python.Config(kubeconfig_path=str(api_server.kubeconfig), namespace="default") as helm:
        async with api_server.client() as client:
            await asyncio.to_thread(helm.install, chart, "chart-test", VALUES)
            try:
                before = await kept(client)
                assert all(value for data in before for value in data.values())
                await asyncio.to_thread(helm.upgrade, chart, "chart-test", no_hook)
                assert await kept(client) == before
                chosen = {**no_hook, "postgres": {"auth": {"password": "chosen"}}}
                await asyncio.to_thread(helm.upgrade, chart, "chart-test", chosen)
                (database, token) = await kept(client)
                assert database["password"] != before[0]["password"]
                assert database["replication-password"] == before[0]["replication-password"]
                assert token == before[1]
            finally:
                await asyncio.to_thread(helm.uninstall, "chart-test")
            assert await kept(client) == [database, token]
            for name in (CONTROLPLANE, WORKLOADS):
                assert (await client.call("GET", f"/api/v1/namespaces/{name}"))["status"]["phase"] == "Active"
            # Installing again finds it all.
            await asyncio.to_thread(helm.install, chart, "chart-test", VALUES)
            try:
                assert await kept(client) == [database, token]
            finally:
                await asyncio.to_thread(helm.uninstall, "chart-test")
                for name in (CONTROLPLANE, WORKLOADS):
                    await client.try_call("DELETE", f"/api/v1/namespaces/{name}")

"""Charts on a real API server, and what their accounts may do there."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import helm_python
import pytest

from tests.chart.rendering import CHARTS
from tests.kubernetes.api_client import ApiClient
from tests.kubernetes.api_server import ApiServer, make_namespace
from tests.kubernetes.permissions import Permission, allowed_by

Upgrade = Callable[[dict[str, Any]], Awaitable[object]]
_OWN = "kubernetes.io/bootstrapping"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_KINDS = {
    "Role": "roles",
    "ClusterRole": "clusterroles",
    "RoleBinding": "rolebindings",
    "ClusterRoleBinding": "clusterrolebindings",
}


@asynccontextmanager
async def installed(
    server: ApiServer, chart: str, namespace: str, values: dict[str, Any] | None = None
) -> AsyncIterator[Upgrade]:
    """The chart as a release of its own name; what is given out upgrades it with these values over the first ones."""
    if not server.real:
        pytest.skip("the emulator has no RBAC and knows too few kinds; KUBEBUILDER_ASSETS names a real one")
    first = values or {}
    await make_namespace(server, namespace)
    loaded = helm_python.Chart.load(str(CHARTS / chart))
    with helm_python.Config(kubeconfig_path=str(server.kubeconfig), namespace=namespace) as helm:
        await asyncio.to_thread(helm.install, loaded, chart, first)
        try:
            yield lambda values: asyncio.to_thread(helm.upgrade, loaded, chart, {**first, **values})
        finally:
            await asyncio.to_thread(helm.uninstall, chart)


async def allowed_there(client: ApiClient, account: str, namespace: str) -> set[Permission]:
    """What roles of ours allow an account: those that the cluster has by itself are left out."""
    found = []
    for kind, plural in _KINDS.items():
        listed = (await client.call("GET", f"{_RBAC}/{plural}"))["items"]
        found += [
            {"kind": kind, **resource} for resource in listed if _OWN not in (resource["metadata"].get("labels") or {})
        ]
    return allowed_by(found, account, namespace)

"""What a cluster's own rules say to our pods: never, not now, or yes."""

from dataclasses import replace
from typing import Any

import pytest

from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.adapters.kubernetes.jobs.cluster import ClusterRules, KubernetesCluster
from reservation_core.domain.statuses import ReasonCode
from reservation_core.ports.cluster import ClusterUnavailableError, PodRefusedError
from tests.integration.cluster_behaviour import SpecMaker, status_of
from tests.integration.reservation_core.adapters.kubernetes.conftest import transport_to
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.fault_proxy import FaultProxy, Harm
from tests.waiting import eventually


@pytest.fixture
def real(api_server: ApiServer) -> ApiServer:
    """Admission is what the emulator does not do."""
    if not api_server.real:
        pytest.skip("the emulator admits everything")
    return api_server


async def post(server: ApiServer, path: str, body: dict[str, Any]) -> None:
    """Create something as the administrator."""
    async with server.client() as client:
        await client.call("POST", path, body)


async def test_our_pods_may_live_where_pod_security_is_restricted(
    cluster: KubernetesCluster, real: ApiServer, namespace: str, make_spec: SpecMaker
) -> None:
    async with real.client() as client:
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        patch = {"metadata": {"labels": labels}}
        await client.call(
            "PATCH", f"/api/v1/namespaces/{namespace}", patch, content_type="application/merge-patch+json"
        )
    spec = make_spec("true")
    await cluster.create_pod(spec)
    assert await status_of(cluster, spec) is not None


async def test_a_pod_that_breaks_a_limit_is_refused_for_good(
    cluster: KubernetesCluster, real: ApiServer, namespace: str, make_spec: SpecMaker
) -> None:
    limit = {"metadata": {"name": "small"}, "spec": {"limits": [{"type": "Container", "max": {"cpu": "1m"}}]}}
    await post(real, f"/api/v1/namespaces/{namespace}/limitranges", limit)

    async def refused() -> PodRefusedError | None:
        try:
            await cluster.create_pod(make_spec("true"))
        except PodRefusedError as refusal:
            return refusal
        return None

    refusal = await eventually(refused)  # admission learns of new rules in its own time
    assert refusal is not None
    assert refusal.reason.code is ReasonCode.START_FAILED
    assert "maximum cpu" in refusal.reason.detail


async def test_a_quota_that_is_used_up_may_be_free_again_later(
    cluster: KubernetesCluster, real: ApiServer, namespace: str, make_spec: SpecMaker
) -> None:
    await post(
        real,
        f"/api/v1/namespaces/{namespace}/resourcequotas",
        {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}},
    )
    async with real.client() as client:  # as the quota controller would write it
        await client.call(
            "PATCH",
            f"/api/v1/namespaces/{namespace}/resourcequotas/none/status",
            {"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}},
            content_type="application/merge-patch+json",
        )

    async def unavailable() -> str:
        try:
            await cluster.create_pod(make_spec("true"))
        except ClusterUnavailableError as problem:
            return str(problem)
        return ""

    assert "exceeded quota" in await eventually(unavailable)


async def test_a_namespace_that_is_not_there_is_named(
    transport: Transport, rules: ClusterRules, make_spec: SpecMaker
) -> None:
    nowhere = replace(rules, pods=replace(rules.pods, namespace="not-there"))
    with pytest.raises(ClusterUnavailableError, match=r"not-there.*GPU_DEV_KUBERNETES__NAMESPACE"):
        await KubernetesCluster(transport, nowhere, SystemClock()).create_pod(make_spec("true"))


@pytest.mark.parametrize("code", [400, 413, 422])
async def test_an_object_that_the_api_will_not_have_is_refused_for_good(
    fault_proxy: FaultProxy, rules: ClusterRules, make_spec: SpecMaker, code: int
) -> None:
    cluster = KubernetesCluster(transport_to(fault_proxy.kubeconfig()), rules, SystemClock())
    fault_proxy.inject(Harm.ANSWER, "POST", code=code)
    with pytest.raises(PodRefusedError) as refused:
        await cluster.create_pod(make_spec("true"))
    assert refused.value.reason.code is ReasonCode.START_FAILED
    assert len(fault_proxy.requests) == 1
    await cluster.close()

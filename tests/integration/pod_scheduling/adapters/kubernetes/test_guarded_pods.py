"""Pods that people made, as those see and change them who end them: on the emulator, or a real API server."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pod_scheduling.adapters.kubernetes.guarded_pods import GuardRules, KubernetesGuardedPods
from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.kubernetes.api_server.credentials import Credentials
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.adapters.kubernetes.other_objects.event_writer import EventWriter
from reservation_core.domain.pods.pod_endings import GuardedPod
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.pods.guarded_pods import BudgetRefusedError, EndRefusedError
from tests.kubernetes.api_client import MERGE, JsonObject
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.fault_proxy import FaultProxy, Harm
from tests.kubernetes.node.kubelet import Kubelet
from tests.kubernetes.real.kube_controller_manager import kube_controller_manager_of, started_controllers
from tests.waiting import eventually

END = datetime(2030, 1, 1, 12, 30, tzinfo=UTC)
SLEEPS = {"name": "c", "image": "registry.test/c:1", "command": ["sleep", "600"]}


def pod(name: str, *, gpus: int = 0, **more: Any) -> JsonObject:
    """A pod on node-a, as the webhook leaves it: with `annotations`, its `labels`."""
    metadata = {"name": name, "annotations": more.pop("annotations", {}), "labels": more.pop("labels", {})}
    container = {**SLEEPS, **({"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}} if gpus else {})}
    return {"metadata": metadata, "spec": {"nodeName": "node-a", "containers": [container], **more}}


MARKED = {"gpu-dev/owner": "alice", "gpu-dev/booking": "bkg-1", "gpu-dev/terminate-at": "2030-01-01T12:00:00Z"}


@pytest.fixture
async def guarded(api_server: ApiServer, namespace: str) -> AsyncIterator[KubernetesGuardedPods]:
    async with guarding(api_server.kubeconfig_with(api_server.admin_token, "guard")) as pods:
        await label(api_server, namespace)
        yield pods


@asynccontextmanager
async def guarding(kubeconfig: Path) -> AsyncIterator[KubernetesGuardedPods]:
    """An adapter while the block runs."""
    transport = Transport(Credentials(kubeconfig, None, {}), 10)
    events = EventWriter(transport, SystemClock(), "reservation-expiry", "test")
    try:
        yield KubernetesGuardedPods(transport, GuardRules(), events)
    finally:
        await transport.close()


async def label(server: ApiServer, namespace: str, value: str | None = "true") -> None:
    async with server.client() as client:
        body = {"metadata": {"labels": {"gpu-dev/enforce-bookings": value}}}
        await client.call("PATCH", f"/api/v1/namespaces/{namespace}", body, content_type=MERGE)


async def make(server: ApiServer, namespace: str, *pods: JsonObject) -> None:
    async with server.client() as client:
        for pod in pods:
            await client.call("POST", f"/api/v1/namespaces/{namespace}/pods", pod)


async def found(server: ApiServer, namespace: str, name: str) -> JsonObject | None:
    async with server.client() as client:
        for pod in (await client.call("GET", f"/api/v1/namespaces/{namespace}/pods"))["items"]:
            if pod["metadata"]["name"] == name:
                return dict(pod)
    return None


def of(pods: Mapping[str, GuardedPod], namespace: str) -> dict[str, GuardedPod]:
    return {pod.name: pod for pod in pods.values() if pod.namespace == namespace}


async def test_what_is_read_of_a_pod(
    guarded: KubernetesGuardedPods, api_server: ApiServer, namespace: str, kubelet: Kubelet
) -> None:
    mapped = pod("mapped", annotations={"gpu-dev/map-digest": "sha256:0", "gpu-dev/preemptible": "true"})
    mapped["spec"]["containers"][0]["env"] = [{"name": "CUDA_VISIBLE_DEVICES", "value": "0,2"}]
    typed = pod("typed", gpus=2, nodeSelector={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"})
    del typed["spec"]["nodeName"]
    marked = pod("marked", annotations=MARKED, terminationGracePeriodSeconds=77)
    await make(api_server, namespace, mapped, marked, pod("plain"), typed)

    async def begun() -> bool:
        seen = of(await guarded.list_pods(), namespace)
        return all(seen[name].began is not None for name in ("mapped", "marked"))

    await eventually(begun)
    seen = of(await guarded.list_pods(), namespace)
    assert sorted(seen) == ["mapped", "marked", "typed"]
    assert (seen["mapped"].gpus, seen["mapped"].cards, seen["mapped"].preemptible) == (2, (0, 2), True)
    one = seen["marked"]
    assert (one.owner, one.booking_id, one.marked_end) == ("alice", "bkg-1", END - timedelta(minutes=30))
    assert (one.node, one.grace_s, one.leaving, one.finished_at, one.enforced) == ("node-a", 77, False, None, True)
    assert (seen["typed"].gpus, seen["typed"].gpu_type, seen["typed"].node) == (2, "h100", None)


async def test_only_labelled_namespaces_are_enforced_and_that_may_change(
    guarded: KubernetesGuardedPods, api_server: ApiServer, namespace: str, kubelet: Kubelet
) -> None:
    shown: list[dict[str, GuardedPod]] = []
    following = asyncio.create_task(guarded.follow(lambda pods: shown.append(of(pods, namespace))))
    try:
        await make(api_server, namespace, pod("p", annotations=MARKED))
        await eventually(lambda: shown and "p" in shown[-1] and shown[-1]["p"].enforced)
        await label(api_server, namespace, None)
        await eventually(lambda: not shown[-1]["p"].enforced)
        assert not of(await guarded.list_pods(), namespace)["p"].enforced
        await label(api_server, namespace)
        await eventually(lambda: shown[-1]["p"].enforced)
        [one] = shown[-1].values()
        await guarded.evict(one, 1)
        await eventually(lambda: not shown[-1])
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def test_an_end_is_marked_on_this_pod_and_no_other_of_its_name(
    guarded: KubernetesGuardedPods, api_server: ApiServer, namespace: str, kubelet: Kubelet
) -> None:
    await make(api_server, namespace, pod("p", annotations=MARKED))
    one = of(await guarded.list_pods(), namespace)["p"]
    await guarded.mark_end(one, END)
    assert of(await guarded.list_pods(), namespace)["p"].marked_end == END
    async with api_server.client() as client:
        await client.call("DELETE", f"/api/v1/namespaces/{namespace}/pods/p", {"gracePeriodSeconds": 0})
    await guarded.mark_end(one, END)
    await guarded.evict(one, 1)
    await make(api_server, namespace, pod("p", annotations=MARKED))
    await guarded.mark_end(one, END + timedelta(hours=9))
    assert of(await guarded.list_pods(), namespace)["p"].marked_end == END - timedelta(minutes=30)
    await guarded.evict(one, 1)
    await guarded.delete(one, 1)
    still = await found(api_server, namespace, "p")
    assert still is not None
    assert "deletionTimestamp" not in still["metadata"]


async def test_an_evicted_pod_gets_its_grace_and_no_more_than_is_allowed(
    guarded: KubernetesGuardedPods, api_server: ApiServer, namespace: str, kubelet: Kubelet
) -> None:
    await make(
        api_server,
        namespace,
        pod("long", annotations=MARKED, terminationGracePeriodSeconds=600),
        pod("short", annotations=MARKED, terminationGracePeriodSeconds=3),
        pod("forged", annotations={"gpu-dev/owner": "al\x00ice", "gpu-dev/booking": "b" * 300}),
    )
    forged = of(await guarded.list_pods(), namespace)["forged"]
    assert (forged.owner, forged.booking_id) == (None, None)
    await guarded.evict(forged, 1)
    async with api_server.client() as client:
        for name in ("long", "short"):  # what holds them makes the grace be seen
            held: JsonObject = {"metadata": {"finalizers": ["test.example/hold"]}}
            await client.call("PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}", held, content_type=MERGE)
    for listed_pod in of(await guarded.list_pods(), namespace).values():
        await guarded.evict(listed_pod, 30)
    graces = {}
    for name in ("long", "short"):
        left = await found(api_server, namespace, name)
        assert left is not None
        graces[name] = left["metadata"]["deletionGracePeriodSeconds"]
    assert all(
        listed.leaving for listed in of(await guarded.list_pods(), namespace).values() if listed.name != "forged"
    )
    assert graces["long"] <= 30
    assert graces["short"] <= 3
    async with api_server.client() as client:
        for name in ("long", "short"):
            freed: JsonObject = {"metadata": {"finalizers": None}}
            await client.try_call("PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}", freed, content_type=MERGE)


async def test_events_are_written_about_the_pod(
    guarded: KubernetesGuardedPods, api_server: ApiServer, namespace: str, kubelet: Kubelet
) -> None:
    await make(api_server, namespace, pod("p", annotations=MARKED))
    guarded.add_event(of(await guarded.list_pods(), namespace)["p"], "EndingSoon", "It ends at noon.")
    await guarded.write_events()
    async with api_server.client() as client:
        [event] = [
            event
            for event in (await client.call("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"))["items"]
            if event["reason"] == "EndingSoon"
        ]
    assert (event["note"], event["regarding"]["name"], event["type"]) == ("It ends at noon.", "p", "Warning")


async def test_a_server_in_trouble_is_no_budget(
    api_server: ApiServer, namespace: str, kubelet: Kubelet, fault_proxy: FaultProxy
) -> None:
    await label(api_server, namespace)
    await make(api_server, namespace, pod("p", annotations=MARKED))
    async with guarding(fault_proxy.kubeconfig(api_server.admin_token, "guard-proxied")) as guarded:
        one = of(await guarded.list_pods(), namespace)["p"]
        for status, expected in (
            (429, ClusterUnavailableError),
            (500, ClusterUnavailableError),
            (403, EndRefusedError),
        ):
            fault_proxy.inject(Harm.ANSWER, "POST", "/eviction", code=status, times=1)
            with pytest.raises(expected):
                await guarded.evict(one, 1)


async def test_a_disruption_budget_keeps_a_pod(
    guarded: KubernetesGuardedPods, api_server: ApiServer, namespace: str, kubelet: Kubelet
) -> None:
    program = kube_controller_manager_of(api_server)
    if program is None:
        pytest.skip("budgets need a real API server and its controller manager: set KUBEBUILDER_ASSETS")
    labels = {"app": "kept"}
    await make(api_server, namespace, pod("p", annotations=MARKED, labels=labels))
    budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}}}
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    with started_controllers(api_server, program, "disruption-controller"):
        async with api_server.client() as client:
            await client.call("POST", path, budget)

            async def counted() -> bool:
                status = (await client.call("GET", f"{path}/b")).get("status", {})
                return bool(status.get("currentHealthy") == 1)

            await eventually(counted)
            one = of(await guarded.list_pods(), namespace)["p"]
            with pytest.raises(BudgetRefusedError, match="disruption budget"):
                await guarded.evict(one, 1)
            await client.call("POST", path, {**budget, "metadata": {"name": "second"}})

            async def second_counts() -> bool:
                try:
                    await guarded.evict(one, 1)
                except BudgetRefusedError as refusal:
                    return "more than one" in str(refusal)
                return False

            await eventually(second_counts)
            await guarded.delete(one, 1)

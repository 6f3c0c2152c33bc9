"""Pods whose labels somebody took off are no ended pods: they are found by name."""

import asyncio

import pytest
import structlog

from reservation_core.adapters.kubernetes.jobs.cluster import ClusterRules, KubernetesCluster
from reservation_core.domain.model import PodName, PodPhase, PodPlace
from tests.integration.cluster_behaviour import AT_ONCE, SpecMaker, phases
from tests.integration.reservation_core.adapters.kubernetes.api_server.watching import settled, strip
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.fault_proxy import FaultProxy, Harm
from tests.waiting import eventually


@pytest.mark.parametrize("labels", [["managed"], ["reservation"], ["rank"], ["managed", "reservation", "rank"]])
@pytest.mark.parametrize("relisted", [False, True])
async def test_labels_that_are_gone_are_not_the_pods_end(
    watched: KubernetesCluster,
    cluster: KubernetesCluster,
    fault_proxy: FaultProxy,
    api_server: ApiServer,
    rules: ClusterRules,
    make_spec: SpecMaker,
    labels: list[str],
    relisted: bool,
) -> None:
    async with settled(watched, cluster, make_spec) as (seen, spec):
        with structlog.testing.capture_logs() as told:
            await strip(api_server, rules, spec, *labels)
            if relisted:
                fault_proxy.inject(Harm.ANSWER, "GET", "watch=true", code=410, times=1)
                fault_proxy.cut_watches()
            other = make_spec("true")
            await cluster.create_pod(other)
            await eventually(lambda: PodPhase.FINISHED in phases(seen, other))
        assert phases(seen, spec) == [PodPhase.RUNNING]
        assert [entry["pod"] for entry in told if "has lost labels" in entry["event"]] == [str(spec.name)]
        assert spec.name in {pod.name for pod in (await cluster.list_pods()).pods}
        assert [pod.name for pod in await cluster.find_pods(spec.name.reservation_id, [spec.name])] == [spec.name]
        # A create that is said again finds it, and it ends when it is told to.
        await cluster.create_pod(spec)
        await cluster.delete_pod(str(spec.name), AT_ONCE)
        await eventually(lambda: phases(seen, spec)[-1] is PodPhase.GONE)
        assert await cluster.find_pods(spec.name.reservation_id, [spec.name]) == []


async def test_a_pod_that_does_not_say_what_it_holds_is_somewhere_nevertheless(
    cluster: KubernetesCluster, api_server: ApiServer, rules: ClusterRules, make_spec: SpecMaker
) -> None:
    spec = make_spec("sleep", "600")
    await cluster.create_pod(spec)
    path = f"/api/v1/namespaces/{rules.pods.namespace}/pods/{spec.name}"
    async with api_server.client() as client:
        body = {"metadata": {"annotations": {"gpu-dev/gpu-indices": "all of them"}}}
        await client.call("PATCH", path, body, content_type="application/merge-patch+json")
    [found] = await cluster.find_pods(spec.name.reservation_id)
    assert (found.holding, found.place) == (None, PodPlace(spec.node, None))


async def test_many_pods_without_labels_are_found_by_one_more_list(
    watched: KubernetesCluster,
    cluster: KubernetesCluster,
    fault_proxy: FaultProxy,
    api_server: ApiServer,
    rules: ClusterRules,
    make_spec: SpecMaker,
) -> None:
    gang = [make_spec("sleep", "600", name=PodName("job-stripped", 1, rank)) for rank in range(10)]
    await asyncio.gather(*(cluster.create_pod(spec) for spec in gang))
    await strip(api_server, rules, gang[7], "managed")
    names = [spec.name for spec in gang]
    before = len(fault_proxy.requests)
    assert {pod.name for pod in await watched.find_pods("job-stripped", names)} == set(names)
    await asyncio.gather(*(strip(api_server, rules, spec, "reservation") for spec in gang))
    assert {pod.name for pod in await watched.find_pods("job-stripped", names)} == set(names)
    asked = [seen.path.partition("?")[0].rpartition("/")[2] for seen in fault_proxy.requests[before:]]
    assert asked == ["pods", str(gang[7].name), "pods", "pods"]


async def test_a_pod_that_was_seen_to_go_is_not_asked_for_until_it_is_seen_again(
    watched: KubernetesCluster,
    cluster: KubernetesCluster,
    fault_proxy: FaultProxy,
    api_server: ApiServer,
    rules: ClusterRules,
    make_spec: SpecMaker,
) -> None:
    async with settled(watched, cluster, make_spec) as (seen, spec):
        await cluster.delete_pod(str(spec.name), AT_ONCE)
        await eventually(lambda: phases(seen, spec)[-1] is PodPhase.GONE)
        before = len(fault_proxy.requests)
        assert await watched.find_pods(spec.name.reservation_id, [spec.name]) == []
        assert [f"/{spec.name}" in request.path for request in fault_proxy.requests[before:]] == [False]
        await cluster.create_pod(spec)
        await eventually(lambda: phases(seen, spec)[-1] is PodPhase.RUNNING)
        await strip(api_server, rules, spec, "reservation")
        assert [pod.name for pod in await watched.find_pods(spec.name.reservation_id, [spec.name])] == [spec.name]

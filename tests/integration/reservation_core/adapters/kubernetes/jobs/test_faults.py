"""An API server as it is: busy, silent, forgetful of answers, and not always for us."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.kubernetes.jobs.cluster import ClusterRules, KubernetesCluster
from reservation_core.domain.model import PodPhase
from reservation_core.domain.statuses import ReasonCode
from reservation_core.ports.cluster import ClusterUnavailableError, PodRefusedError
from tests.integration.cluster_behaviour import AT_ONCE, GRACE, SpecMaker, reaches, status_of
from tests.integration.reservation_core.adapters.kubernetes.conftest import transport_to
from tests.kubernetes.api_client import MERGE
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.fault_proxy import FaultProxy, Harm, Partition
from tests.kubernetes.node.kubelet import Kubelet
from tests.read_yaml import read_yaml
from tests.waiting import eventually


@pytest.fixture
async def proxied(
    fault_proxy: FaultProxy, rules: ClusterRules, kubelet: Kubelet, runtime_class: None
) -> AsyncIterator[KubernetesCluster]:
    """The cluster behind the fault proxy. One attempt may take three seconds: a second one fits in after it."""
    cluster = KubernetesCluster(transport_to(fault_proxy.kubeconfig(), timeout_s=3), rules, SystemClock())
    yield cluster
    await cluster.close()


@pytest.fixture
async def impatient(fault_proxy: FaultProxy, rules: ClusterRules) -> AsyncIterator[KubernetesCluster]:
    """The same with no kubelet and little patience, for what fails anyway."""
    cluster = KubernetesCluster(transport_to(fault_proxy.kubeconfig(), timeout_s=0.2), rules, SystemClock())
    yield cluster
    await cluster.close()


async def object_at(api_server: ApiServer, path: str) -> dict[str, Any]:
    """What the API server has there, without going through the proxy."""
    async with api_server.client() as client:
        return await client.call("GET", path)


CALLS: dict[str, Callable[[KubernetesCluster, SpecMaker], Awaitable[object]]] = {
    "list_nodes": lambda cluster, make: cluster.list_nodes(),
    "list_pods": lambda cluster, make: cluster.list_pods(foreign=True),
    "find_pods": lambda cluster, make: cluster.find_pods("job-x"),
    "create_pod": lambda cluster, make: cluster.create_pod(make("true")),
    "delete_pod": lambda cluster, make: cluster.delete_pod("job-x-1-0", GRACE),
    "forget_pod": lambda cluster, make: cluster.forget_pod("job-x-1-0"),
    "extend_deadline": lambda cluster, make: cluster.extend_deadline("job-x-1-0", SystemClock().now()),
    "pod_logs": lambda cluster, make: anext(aiter(cluster.pod_logs("job-x-1-0", follow=False))),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("code", [401, 403, 429, 503])
async def test_an_error_that_lasts_is_told_and_never_taken_for_an_answer(
    impatient: KubernetesCluster, fault_proxy: FaultProxy, make_spec: SpecMaker, call: str, code: int
) -> None:
    fault_proxy.inject(Harm.ANSWER, code=code)
    with pytest.raises(ClusterUnavailableError):
        await CALLS[call](impatient, make_spec)


@pytest.mark.parametrize("harm", [Harm.DROP_REQUEST, Harm.HANG])
@pytest.mark.parametrize("call", ["list_pods", "find_pods", "create_pod", "delete_pod", "pod_logs"])
async def test_silence_that_lasts_is_told_and_never_taken_for_an_answer(
    impatient: KubernetesCluster, fault_proxy: FaultProxy, make_spec: SpecMaker, call: str, harm: Harm
) -> None:
    fault_proxy.inject(harm)
    with pytest.raises(ClusterUnavailableError, match="Try again"):
        await CALLS[call](impatient, make_spec)


@pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
async def test_what_passes_is_waited_for(
    proxied: KubernetesCluster, fault_proxy: FaultProxy, make_spec: SpecMaker, code: int
) -> None:
    spec = make_spec("sleep", "600")
    for method in ("POST", "GET", "DELETE", "PATCH"):
        fault_proxy.inject(Harm.ANSWER, method, code=code, times=2)
    await proxied.create_pod(spec)
    await eventually(reaches(proxied, spec, PodPhase.RUNNING))
    await proxied.extend_deadline(str(spec.name), spec.deadline)
    await proxied.delete_pod(str(spec.name), AT_ONCE)
    await eventually(reaches(proxied, spec, PodPhase.GONE))


async def test_retry_after_is_honoured_by_every_create(
    api_server: ApiServer, fault_proxy: FaultProxy, rules: ClusterRules, runtime_class: None, make_spec: SpecMaker
) -> None:
    cluster = KubernetesCluster(transport_to(fault_proxy.kubeconfig()), rules, SystemClock())
    fault_proxy.inject(Harm.ANSWER, "POST", code=429, times=1, retry_after_s=1)
    first = asyncio.create_task(cluster.create_pod(make_spec("true")))
    clock = asyncio.get_running_loop().time
    await eventually(lambda: cluster._pacing.take(clock()) > 0 or first.done())  # the pause may be over by now
    await asyncio.gather(first, *(cluster.create_pod(make_spec("true")) for _ in range(3)))
    refused, *later = [seen for seen in fault_proxy.requests if seen.method == "POST" and "/pods" in seen.path]
    assert (refused.code, [seen.code for seen in later]) == (429, [201] * 4)
    assert min(seen.at for seen in later) >= refused.at + 1
    await cluster.close()


@pytest.mark.parametrize("harm", [Harm.DROP_ANSWER, Harm.HANG_AFTER, Harm.ANSWER_INSTEAD])
async def test_a_create_whose_answer_was_lost_made_one_pod_that_is_ours(
    proxied: KubernetesCluster, fault_proxy: FaultProxy, make_spec: SpecMaker, kubelet: Kubelet, harm: Harm
) -> None:
    spec = make_spec("sleep", "600")
    lost = fault_proxy.inject(harm, "POST", "/pods", code=504, times=1)
    await proxied.create_pod(spec)
    assert lost.used == 1
    await eventually(reaches(proxied, spec, PodPhase.RUNNING))
    assert kubelet.started == [str(spec.name)]


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (Harm.DROP_ANSWER, True),
        (Harm.DROP_REQUEST, True),
        (Harm.HANG, True),
        (Harm.ANSWER_INSTEAD, True),
        (Harm.ANSWER, False),
        (None, False),
    ],
)
async def test_who_creates_hears_of_tries_that_were_not_answered(
    proxied: KubernetesCluster, fault_proxy: FaultProxy, make_spec: SpecMaker, harm: Harm | None, said: bool
) -> None:
    if harm is not None:
        code = 429 if harm is Harm.ANSWER else 504
        fault_proxy.inject(harm, "POST", "/pods", code=code, retry_after_s=0, times=1)
    heard: list[bool] = []
    await proxied.create_pod(make_spec("true"), lambda: heard.append(True))
    assert bool(heard) is said


@pytest.mark.parametrize("harm", [Harm.DROP_ANSWER, Harm.HANG_AFTER, Harm.ANSWER_INSTEAD])
async def test_a_delete_whose_answer_was_lost_is_a_delete(
    proxied: KubernetesCluster, fault_proxy: FaultProxy, make_spec: SpecMaker, harm: Harm
) -> None:
    spec = make_spec("sleep", "600")
    await proxied.create_pod(spec)
    await eventually(reaches(proxied, spec, PodPhase.RUNNING))
    lost = fault_proxy.inject(harm, "DELETE", code=504, times=1)
    await proxied.delete_pod(str(spec.name), AT_ONCE)
    assert lost.used == 1
    await eventually(reaches(proxied, spec, PodPhase.GONE))


async def test_a_name_that_is_kept_runs_nothing_more_until_it_is_let_go(
    cluster: KubernetesCluster, make_spec: SpecMaker, kubelet: Kubelet
) -> None:
    spec = make_spec("sleep", "600")
    await cluster.create_pod(spec)
    await eventually(reaches(cluster, spec, PodPhase.RUNNING))
    for _ in range(2):
        await cluster.delete_pod(str(spec.name), AT_ONCE, keep_name=True)
    await eventually(reaches(cluster, spec, PodPhase.FINISHED))
    await cluster.create_pod(spec)
    assert kubelet.running() == []
    assert kubelet.started == [str(spec.name)]
    await cluster.delete_pod(str(spec.name), AT_ONCE)
    assert await status_of(cluster, spec) is None


@pytest.mark.parametrize("known", [True, False])
async def test_a_pod_that_somebody_else_is_deleting_is_ended_though_its_name_cannot_be_kept(
    cluster: KubernetesCluster, api_server: ApiServer, rules: ClusterRules, make_spec: SpecMaker, known: bool
) -> None:
    spec = make_spec("sh", "-c", "trap '' TERM; while :; do sleep 0.01; done")
    await cluster.create_pod(spec)
    await eventually(reaches(cluster, spec, PodPhase.RUNNING))
    path = f"/api/v1/namespaces/{rules.pods.namespace}/pods/{spec.name}"
    async with api_server.client() as client:
        await client.call("DELETE", path, {"gracePeriodSeconds": 600})
    if known:
        await status_of(cluster, spec)
    await cluster.delete_pod(str(spec.name), AT_ONCE, keep_name=True)
    await eventually(reaches(cluster, spec, PodPhase.GONE))


@pytest.mark.parametrize("forget", [True, False])
async def test_finalizers_of_others_are_theirs(
    cluster: KubernetesCluster, api_server: ApiServer, rules: ClusterRules, make_spec: SpecMaker, forget: bool
) -> None:
    spec = make_spec("sleep", "600")
    await cluster.create_pod(spec)
    await eventually(reaches(cluster, spec, PodPhase.RUNNING))
    path = f"/api/v1/namespaces/{rules.pods.namespace}/pods/{spec.name}"
    async with api_server.client() as client:
        await client.call("PATCH", path, {"metadata": {"finalizers": ["tests.example/hold"]}}, content_type=MERGE)
        await cluster.delete_pod(str(spec.name), AT_ONCE, keep_name=True)
        held = (await client.call("GET", path))["metadata"]["finalizers"]
        assert sorted(held) == ["gpu-dev/name-kept", "tests.example/hold"]
        await (cluster.forget_pod(str(spec.name)) if forget else cluster.delete_pod(str(spec.name), AT_ONCE))
        assert (await client.call("GET", path))["metadata"]["finalizers"] == ["tests.example/hold"]
        await client.call("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE)
    await eventually(reaches(cluster, spec, PodPhase.GONE))


async def test_a_pod_ends_though_its_finalizer_is_refused(
    proxied: KubernetesCluster, fault_proxy: FaultProxy, make_spec: SpecMaker
) -> None:
    spec = make_spec("sleep", "600")
    await proxied.create_pod(spec)
    await eventually(reaches(proxied, spec, PodPhase.RUNNING))
    refused = fault_proxy.inject(Harm.ANSWER, "PATCH", "/pods", code=403)
    await proxied.delete_pod(str(spec.name), AT_ONCE, keep_name=True)
    assert refused.used
    await eventually(reaches(proxied, spec, PodPhase.GONE))


async def test_a_name_that_somebody_else_has_taken_is_refused_and_left_alone(
    cluster: KubernetesCluster, api_server: ApiServer, rules: ClusterRules, make_spec: SpecMaker
) -> None:
    spec = make_spec("true")
    path = f"/api/v1/namespaces/{rules.pods.namespace}/pods"
    container = {"name": "other", "image": "registry.test/other:1", "command": ["sleep", "600"]}
    body = {"metadata": {"name": str(spec.name)}, "spec": {"containers": [container]}}
    async with api_server.client() as client:
        await client.call("POST", path, body)
    with pytest.raises(PodRefusedError) as refused:
        await cluster.create_pod(spec)
    assert refused.value.reason.code is ReasonCode.START_FAILED
    assert str(spec.name) in refused.value.reason.detail
    await cluster.delete_pod(str(spec.name), GRACE)
    await cluster.forget_pod(str(spec.name))
    assert "deletionTimestamp" not in (await object_at(api_server, f"{path}/{spec.name}"))["metadata"]


async def test_a_pod_of_ours_on_other_cards_is_not_taken_for_this_one(
    cluster: KubernetesCluster, make_spec: SpecMaker
) -> None:
    """A ledger restored from a backup may give an attempt's number out again, with other cards."""
    spec = make_spec("sleep", "600")
    await cluster.create_pod(spec)
    with pytest.raises(PodRefusedError):
        await cluster.create_pod(replace(spec, gpu_indices=(1,)))
    assert await status_of(cluster, spec) is not None


async def test_a_deletion_meets_only_the_pod_that_was_seen(
    proxied: KubernetesCluster,
    fault_proxy: FaultProxy,
    api_server: ApiServer,
    rules: ClusterRules,
    make_spec: SpecMaker,
) -> None:
    spec = make_spec("sleep", "600")
    path = f"/api/v1/namespaces/{rules.pods.namespace}/pods/{spec.name}"
    await proxied.create_pod(spec)
    await eventually(reaches(proxied, spec, PodPhase.RUNNING))
    async with api_server.client() as client:
        await client.call("DELETE", path, {"gracePeriodSeconds": 0})
        body = {"name": "other", "image": "registry.test/other:1", "command": ["sleep", "600"]}
        stranger = {"metadata": {"name": str(spec.name)}, "spec": {"containers": [body]}}
        await client.call("POST", path.rpartition("/")[0], stranger)
    await proxied.delete_pod(str(spec.name), AT_ONCE)
    assert "deletionTimestamp" not in (await object_at(api_server, path))["metadata"]
    assert [seen.code for seen in fault_proxy.requests if seen.method == "DELETE"] == [409]


async def test_a_live_pod_is_never_removed_without_its_kubelets_word(
    proxied: KubernetesCluster, fault_proxy: FaultProxy, make_spec: SpecMaker, kubelet: Kubelet
) -> None:
    spec = make_spec("sleep", "600")
    await proxied.create_pod(spec)
    await eventually(reaches(proxied, spec, PodPhase.RUNNING))
    kubelet.silence(spec.node)
    await proxied.delete_pod(str(spec.name), AT_ONCE)
    status = await status_of(proxied, spec)
    assert status is not None
    assert status.phase is PodPhase.RUNNING
    await proxied.forget_pod(str(spec.name))
    assert await status_of(proxied, spec) is None


async def test_a_permission_that_is_missing_is_named(proxied: KubernetesCluster, fault_proxy: FaultProxy) -> None:
    fault_proxy.inject(Harm.ANSWER, code=403)
    with pytest.raises(ClusterUnavailableError, match="verb list on pods"):
        await proxied.find_pods("job-x")
    with pytest.raises(ClusterUnavailableError, match="verb patch on pods"):
        await proxied.extend_deadline("job-x-1-0", SystemClock().now())
    with pytest.raises(ClusterUnavailableError, match="verb list on nodes"):
        await proxied.list_nodes()


async def test_a_token_that_was_rotated_is_read_again_at_once(
    api_server: ApiServer, fault_proxy: FaultProxy, rules: ClusterRules, tmp_path: Path
) -> None:
    token, kubeconfig = tmp_path / "token", fault_proxy.kubeconfig()
    content = read_yaml(kubeconfig.read_text())
    token.write_text("old-token")
    content["users"][0]["user"] = {"tokenFile": str(token)}
    kubeconfig.write_text(yaml.safe_dump(content))
    cluster = KubernetesCluster(transport_to(kubeconfig), rules, SystemClock())
    with_old = fault_proxy.inject(Harm.ANSWER, code=401, headers={"Authorization": "Bearer old-token"})
    with pytest.raises(ClusterUnavailableError, match=re.escape(str(kubeconfig))) as told:
        await cluster.list_pods()
    assert "old-token" not in str(told.value)
    assert with_old.used == 2
    token.write_text(api_server.admin_token)
    await asyncio.gather(*(cluster.list_pods() for _ in range(5)))
    assert [seen.code for seen in fault_proxy.requests[2:]].count(200) == 5
    await cluster.list_pods()
    assert fault_proxy.requests[-1].code == 200
    await cluster.close()


async def test_least_permissions_are_told_apart_by_a_real_server(
    api_server: ApiServer, rules: ClusterRules, make_spec: SpecMaker
) -> None:
    if not api_server.real:
        pytest.skip("the emulator lets everybody do everything")
    token = await api_server.token_of(rules.pods.namespace, "nobody")
    transport = transport_to(api_server.kubeconfig_with(token, "nobody"))
    cluster = KubernetesCluster(transport, rules, SystemClock())
    with pytest.raises(ClusterUnavailableError, match="verb create on pods"):
        await cluster.create_pod(make_spec("true"))
    with pytest.raises(ClusterUnavailableError, match="verb list on pods"):
        await cluster.list_pods()
    await cluster.close()


@pytest.mark.parametrize("how", list(Partition))
async def test_a_partition_says_nothing_about_pods(
    proxied: KubernetesCluster,
    impatient: KubernetesCluster,
    fault_proxy: FaultProxy,
    make_spec: SpecMaker,
    how: Partition,
) -> None:
    spec = make_spec("sleep", "600")
    await proxied.create_pod(spec)
    await eventually(reaches(proxied, spec, PodPhase.RUNNING))
    fault_proxy.partition(how)
    for call in ("find_pods", "list_pods", "list_nodes", "delete_pod"):
        with pytest.raises(ClusterUnavailableError):
            await CALLS[call](impatient, make_spec)
    fault_proxy.heal()
    status = await status_of(proxied, spec)
    assert status is not None
    assert status.phase is PodPhase.RUNNING


async def test_an_answer_that_is_not_an_api_servers_is_no_answer(
    proxied: KubernetesCluster, fault_proxy: FaultProxy, make_spec: SpecMaker
) -> None:
    spec = make_spec("sleep", "600")
    await proxied.create_pod(spec)
    fault_proxy.inject(Harm.CUT_STREAM, "GET", "/pods", lines=0)
    with pytest.raises(ClusterUnavailableError):
        await proxied.find_pods(spec.name.reservation_id)


async def test_a_closed_cluster_says_so(cluster: KubernetesCluster) -> None:
    await cluster.list_pods()
    await cluster.close()
    with pytest.raises(ClusterUnavailableError, match="closed"):
        await cluster.list_pods()


async def test_a_gang_finds_each_other_and_its_service_goes_with_rank_0(
    proxied: KubernetesCluster,
    fault_proxy: FaultProxy,
    api_server: ApiServer,
    rules: ClusterRules,
    make_spec: SpecMaker,
) -> None:
    first = make_spec("sleep", "600", pods=2)
    second = replace(first, name=replace(first.name, rank=1), gpu_indices=(1,))
    services = f"/api/v1/namespaces/{rules.pods.namespace}/services"
    fault_proxy.inject(Harm.DROP_ANSWER, "POST", "/services", times=1)
    for _ in range(2):
        for spec in (first, second):
            await proxied.create_pod(spec)
    name = f"{first.name.reservation_id}-1"
    service = await object_at(api_server, f"{services}/{name}")
    rank_0 = await object_at(api_server, f"/api/v1/namespaces/{rules.pods.namespace}/pods/{first.name}")
    assert [owner["uid"] for owner in service["metadata"]["ownerReferences"]] == [rank_0["metadata"]["uid"]]
    assert service["spec"]["selector"].items() <= rank_0["metadata"]["labels"].items()
    assert proxied.master_address(first.name.reservation_id, 1) == f"{first.name}.{name}"
    assert (rank_0["spec"]["hostname"], rank_0["spec"]["subdomain"]) == (str(first.name), name)

    await proxied.delete_pod(str(second.name), timedelta(0))
    assert [resource["metadata"]["name"] for resource in (await object_at(api_server, services))["items"]] == [name]
    await proxied.delete_pod(str(first.name), timedelta(0))
    assert (await object_at(api_server, services))["items"] == []
    await eventually(reaches(proxied, first, PodPhase.GONE))

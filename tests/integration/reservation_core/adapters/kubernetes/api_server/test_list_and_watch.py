"""Following pods through whatever becomes of the connection: nothing lost, nothing told gone that is not."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.kubernetes.api_server import list_and_watch as watching_module
from reservation_core.adapters.kubernetes.jobs.cluster import ClusterRules, KubernetesCluster
from reservation_core.domain.model import PodPhase
from reservation_core.ports.cluster import ClusterUnavailableError
from tests.integration.cluster_behaviour import AT_ONCE, SpecMaker, phases, reaches, watching
from tests.integration.reservation_core.adapters.kubernetes.api_server.watching import lists, settled, watches
from tests.integration.reservation_core.adapters.kubernetes.conftest import transport_to
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.fault_proxy import FaultProxy, Harm, Partition
from tests.kubernetes.node.kubelet import Kubelet
from tests.waiting import eventually


async def test_a_long_list_comes_in_pages(
    watched: KubernetesCluster,
    cluster: KubernetesCluster,
    fault_proxy: FaultProxy,
    make_spec: SpecMaker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching_module, "PAGE", 3)
    specs = [make_spec("sleep", "600") for _ in range(8)]
    await asyncio.gather(*(cluster.create_pod(spec) for spec in specs))
    names = sorted(str(status.name) for status in (await watched.list_pods()).pods)
    assert names == sorted(str(spec.name) for spec in specs)
    assert lists(fault_proxy) == 3
    async with watching(watched) as seen:
        await eventually(lambda: {status.name for status in seen} == {spec.name for spec in specs})


async def test_a_list_that_the_server_forgets_between_pages_is_asked_for_whole(
    watched: KubernetesCluster,
    cluster: KubernetesCluster,
    fault_proxy: FaultProxy,
    make_spec: SpecMaker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching_module, "PAGE", 2)
    specs = [make_spec("sleep", "600") for _ in range(5)]
    await asyncio.gather(*(cluster.create_pod(spec) for spec in specs))
    forgets = fault_proxy.inject(Harm.ANSWER, "GET", "continue=", code=410, after=1)
    names = [str(status.name) for status in (await watched.list_pods()).pods]
    assert forgets.used == 1
    assert sorted(names) == sorted(str(spec.name) for spec in specs)


@pytest.mark.parametrize("harm", [Harm.ERROR_EVENT, Harm.ANSWER])
async def test_410_means_one_new_list_that_tells_only_what_differs(
    watched: KubernetesCluster,
    cluster: KubernetesCluster,
    fault_proxy: FaultProxy,
    make_spec: SpecMaker,
    harm: Harm,
) -> None:
    async with settled(watched, cluster, make_spec) as (seen, spec):
        other = make_spec("sleep", "600")
        before, listed = len(seen), lists(fault_proxy)
        forgets = fault_proxy.inject(harm, "GET", "watch=true", code=410, times=1)
        fault_proxy.cut_watches()
        await eventually(lambda: forgets.used == 1)
        await cluster.create_pod(other)
        await eventually(lambda: PodPhase.RUNNING in phases(seen, other))
        assert lists(fault_proxy) == listed + 1
        assert {status.name for status in seen[before:]} == {other.name}
        assert phases(seen, spec) == [PodPhase.RUNNING]


async def test_a_version_that_a_server_really_forgot_means_one_new_list(
    watched: KubernetesCluster,
    cluster: KubernetesCluster,
    fault_proxy: FaultProxy,
    api_server: ApiServer,
    make_spec: SpecMaker,
) -> None:
    if api_server.real:
        pytest.skip("a real server forgets after five minutes")
    async with settled(watched, cluster, make_spec) as (seen, spec):
        listed = lists(fault_proxy)
        fault_proxy.partition(Partition.REFUSED)
        await cluster.delete_pod(str(spec.name), AT_ONCE)
        await eventually(reaches(cluster, spec, PodPhase.GONE))
        await api_server.forget_changes()
        fault_proxy.heal()
        await eventually(lambda: phases(seen, spec)[-1] is PodPhase.GONE)
        assert lists(fault_proxy) == listed + 1


async def test_a_dropped_watch_goes_on_from_where_it_was(
    watched: KubernetesCluster, cluster: KubernetesCluster, fault_proxy: FaultProxy, make_spec: SpecMaker
) -> None:
    async with settled(watched, cluster, make_spec) as (seen, spec):
        listed = lists(fault_proxy)
        for _ in range(3):
            other = make_spec("sh", "-c", "exit 3")
            refuses = fault_proxy.inject(Harm.DROP_REQUEST, "GET", "watch=true", times=1)
            fault_proxy.cut_watches()
            await cluster.create_pod(other)
            await eventually(reaches(cluster, other, PodPhase.FINISHED))
            await cluster.delete_pod(str(other.name), AT_ONCE)
            await eventually(lambda other=other: PodPhase.GONE in phases(seen, other))  # type: ignore[misc]
            assert phases(seen, other)[-2:] == [PodPhase.FINISHED, PodPhase.GONE]
            assert refuses.used == 1
        assert lists(fault_proxy) == listed
        assert phases(seen, spec) == [PodPhase.RUNNING]


async def test_an_event_that_is_cut_in_two_is_not_lost(
    watched: KubernetesCluster, cluster: KubernetesCluster, fault_proxy: FaultProxy, make_spec: SpecMaker
) -> None:
    async with settled(watched, cluster, make_spec) as (seen, _):
        cuts = fault_proxy.inject(Harm.CUT_STREAM, "GET", "watch=true", lines=1, times=3)
        fault_proxy.cut_watches()
        spec = make_spec("sh", "-c", "exit 3")
        await cluster.create_pod(spec)
        await eventually(lambda: PodPhase.FINISHED in phases(seen, spec))
        assert cuts.used == 3


async def test_bookmarks_move_the_place_from_which_a_watch_goes_on(
    watched: KubernetesCluster,
    cluster: KubernetesCluster,
    fault_proxy: FaultProxy,
    api_server: ApiServer,
    make_spec: SpecMaker,
) -> None:
    if api_server.real:
        pytest.skip("a real server sends one a minute")
    async with settled(watched, cluster, make_spec):
        async with api_server.client() as client:  # something that is none of ours moves the server's version on
            await client.try_call("POST", "/api/v1/namespaces", {"metadata": {"name": "elsewhere"}})
            version = int((await client.call("GET", "/emulator/version"))["resourceVersion"])
        fault_proxy.inject(Harm.CUT_STREAM, "GET", "watch=true", lines=1, times=1)
        fault_proxy.cut_watches()  # the next watch ends with its first event: a bookmark
        await eventually(lambda: len(watches(fault_proxy)) == 2)
        await eventually(fault_proxy.cut_watches)
        await eventually(lambda: len(watches(fault_proxy)) >= 3)
        asked = [dict(part.split("=") for part in path.partition("?")[2].split("&")) for path in watches(fault_proxy)]
        assert int(asked[2]["resourceVersion"]) >= version
        assert all(query["allowWatchBookmarks"] == "true" for query in asked)


@pytest.mark.parametrize("how", list(Partition))
async def test_a_partition_is_no_end_of_any_pod(
    fault_proxy: FaultProxy, rules: ClusterRules, cluster: KubernetesCluster, make_spec: SpecMaker, how: Partition
) -> None:
    transport = transport_to(fault_proxy.kubeconfig(), timeout_s=0.5)
    watched = KubernetesCluster(transport, replace(rules, watch_silence_s=1), SystemClock())
    async with settled(watched, cluster, make_spec) as (seen, spec):
        other, before = make_spec("sh", "-c", "exit 3"), len(seen)
        fault_proxy.partition(how)
        await cluster.create_pod(other)
        await eventually(reaches(cluster, other, PodPhase.FINISHED))
        with pytest.raises(ClusterUnavailableError):
            await watched.find_pods(spec.name.reservation_id)
        assert len(seen) == before
        fault_proxy.heal()
        await eventually(lambda: PodPhase.FINISHED in phases(seen, other))
        assert phases(seen, spec) == [PodPhase.RUNNING]
    await watched.close()


async def test_a_watch_that_fell_silent_is_left_for_a_new_one(
    fault_proxy: FaultProxy, rules: ClusterRules, cluster: KubernetesCluster, make_spec: SpecMaker
) -> None:
    """A network that drops packets ends no connection; only silence shows it."""
    watched = KubernetesCluster(
        transport_to(fault_proxy.kubeconfig()), replace(rules, watch_silence_s=0.3), SystemClock()
    )
    async with settled(watched, cluster, make_spec) as (seen, spec):
        listed = lists(fault_proxy)
        await eventually(lambda: len(watches(fault_proxy)) >= 2)
        other = make_spec("true")
        await cluster.create_pod(other)
        await eventually(lambda: PodPhase.FINISHED in phases(seen, other))
        assert lists(fault_proxy) == listed
        assert phases(seen, spec) == [PodPhase.RUNNING]
    await watched.close()


async def test_a_server_that_answers_only_errors_is_asked_again(
    watched: KubernetesCluster, cluster: KubernetesCluster, fault_proxy: FaultProxy, make_spec: SpecMaker
) -> None:
    async with settled(watched, cluster, make_spec) as (seen, _):
        for code in (500, 403, 404, 401, 429):
            fault_proxy.inject(Harm.ANSWER, "GET", "watch=true", code=code, times=1)
        fault_proxy.inject(Harm.ERROR_EVENT, "GET", "watch=true", code=500, times=1)
        fault_proxy.cut_watches()
        spec = make_spec("sh", "-c", "exit 3")
        await cluster.create_pod(spec)
        await eventually(lambda: PodPhase.FINISHED in phases(seen, spec))


async def test_a_pod_of_the_same_name_is_another_pod(
    watched: KubernetesCluster,
    cluster: KubernetesCluster,
    fault_proxy: FaultProxy,
    kubelet: Kubelet,
    make_spec: SpecMaker,
) -> None:
    async with settled(watched, cluster, make_spec) as (seen, spec):
        fault_proxy.partition(Partition.REFUSED)
        await cluster.delete_pod(str(spec.name), AT_ONCE)
        await eventually(reaches(cluster, spec, PodPhase.GONE))
        await cluster.create_pod(spec)
        await eventually(reaches(cluster, spec, PodPhase.RUNNING))
        fault_proxy.inject(Harm.ANSWER, "GET", "watch=true", code=410, times=1)
        fault_proxy.heal()
        await eventually(lambda: phases(seen, spec)[-1] is PodPhase.RUNNING and len(phases(seen, spec)) > 1)
        assert PodPhase.GONE in phases(seen, spec)


async def test_who_is_slow_loses_nothing(
    watched: KubernetesCluster, cluster: KubernetesCluster, make_spec: SpecMaker
) -> None:
    specs = [make_spec("sh", "-c", f"exit {number}") for number in range(30)]
    stream: Any = watched.watch()
    await cluster.create_pod(specs[0])
    first = await anext(stream)
    assert first.name == specs[0].name
    await asyncio.gather(*(cluster.create_pod(spec) for spec in specs))
    for spec in specs:
        await eventually(reaches(cluster, spec, PodPhase.FINISHED))
        await cluster.delete_pod(str(spec.name), AT_ONCE)
    ends: dict[object, int | None] = {}
    while len(ends) < len(specs):
        status = await anext(stream)
        if status.phase is PodPhase.GONE:
            ends[status.name] = status.exit_code
    assert ends == {spec.name: number for number, spec in enumerate(specs)}
    await stream.aclose()


async def test_what_changes_nothing_is_not_told(
    watched: KubernetesCluster,
    cluster: KubernetesCluster,
    api_server: ApiServer,
    rules: ClusterRules,
    make_spec: SpecMaker,
) -> None:
    async with settled(watched, cluster, make_spec) as (seen, spec):
        path = f"/api/v1/namespaces/{rules.pods.namespace}/pods/{spec.name}"
        async with api_server.client() as client:
            for number in range(3):
                body = {"metadata": {"annotations": {"example.test/number": str(number)}}}
                await client.call("PATCH", path, body, content_type="application/merge-patch+json")
        other = make_spec("true")
        await cluster.create_pod(other)
        await eventually(lambda: PodPhase.FINISHED in phases(seen, other))
        assert phases(seen, spec) == [PodPhase.RUNNING]


async def test_closing_the_cluster_ends_its_watches(
    watched: KubernetesCluster, cluster: KubernetesCluster, make_spec: SpecMaker
) -> None:
    stream: Any = watched.watch()
    await cluster.create_pod(make_spec("sleep", "600"))
    await anext(stream)

    async def drain() -> None:
        async for _ in stream:
            pass

    task = asyncio.create_task(drain())
    await watched.close()
    with pytest.raises(ClusterUnavailableError, match="closed"):
        await task

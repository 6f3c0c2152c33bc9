"""Extender and a real kube-scheduler as the chart sets them up: who binds what, quotas, bursts, kills, volumes."""

import asyncio
from pathlib import Path

import pytest

from tests.clusters.card_cluster import CORE, WHOLE, CardCluster, container
from tests.integration.gpu_admission.kube_scheduler_world import (
    add_all,
    amounts_by_node,
    as_the_chart_has_it,
    bound_by_us,
    chart_set_up,
    everybody_was_judged,
    here,
    own_scheduler,
)
from tests.kubernetes.api_client import MERGE
from tests.kubernetes.api_server import ApiServer
from tests.programs.admission_process import PATIENCE_S
from tests.waiting import eventually

SELECTED = "volume.kubernetes.io/selected-node"


@pytest.mark.parametrize("bind", ["shares", "all"])
async def test_as_the_chart_has_it_whole_cards_shares_and_both_are_bound_by_whom_it_says(
    api_server: ApiServer, kube_scheduler: Path, cards: CardCluster, bind: str
) -> None:
    plain = [await cards.add_node(gpus=4) for _ in range(2)]
    shared = [await cards.add_node(shared=2, memory=10) for _ in range(2)]
    of_both = await cards.add_node(gpus=2, shared=2, memory=10)
    spec = {"schedulerName": own_scheduler(cards)}
    async with as_the_chart_has_it(api_server, kube_scheduler, cards, bind) as running:
        both = here(cards, "both", container("whole", gpu=1), container("share", core=50, memory=2), **spec)
        await add_all(cards, both)
        await cards.eventually_bound(1)  # first, for the only node that has a place for it may be taken by others
        await add_all(
            cards,
            *(here(cards, f"whole-{number}", container(gpu=1), **spec) for number in range(5)),
            *(here(cards, f"share-{number}", container(core=50, memory=2), **spec) for number in range(4)),
            here(cards, "without", **spec),
        )
        bound = await cards.eventually_bound(11)
        assert bound["both"] == of_both
        assert {bound[f"whole-{number}"] for number in range(5)} <= {*plain, of_both}
        assert {bound[f"share-{number}"] for number in range(4)} <= {*shared, of_both}

        async def counted() -> bool:
            return await bound_by_us(running) >= {"shares": 5, "all": 10}[bind]

        await eventually(counted, PATIENCE_S)
        assert await bound_by_us(running) == {"shares": 5, "all": 10}[bind]
        for name in bound:
            marks = (await cards.read(name))["metadata"].get("annotations") or {}
            number = 1 if name == "both" else 0
            has_share = name == "both" or name.startswith("share")
            assert ("gpu-dev/cards" in marks) is has_share
            assert (f"tencent.com/predicate-gpu-idx-{number}" in marks) is has_share
        by_node = await cards.cards_by_node()
        assert sum(sum(of_node.values()) for of_node in by_node.values()) == 5 * 500
        assert all(milli <= 1000 for of_node in by_node.values() for milli in of_node.values())


async def test_as_the_chart_has_it_a_pod_that_prefers_a_node_goes_there_where_cards_are_alike(
    api_server: ApiServer, kube_scheduler: Path, cards: CardCluster
) -> None:
    nodes = [await cards.add_node(gpus=4) for _ in range(4)]
    async with as_the_chart_has_it(api_server, kube_scheduler, cards, "shares"):
        for number, node in enumerate(reversed(nodes)):
            there = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
            wish = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": there}]}
            spec = {"schedulerName": own_scheduler(cards), "affinity": {"nodeAffinity": wish}}
            await add_all(cards, here(cards, f"p{number}", container(gpu=4), **spec))
            bound = await cards.eventually_bound(number + 1)
            assert bound[f"p{number}"] == node


@pytest.mark.parametrize("bind", ["shares", "all"])
async def test_as_the_chart_has_it_the_only_node_that_does_is_found_among_many(
    api_server: ApiServer, kube_scheduler: Path, cards: CardCluster, bind: str
) -> None:
    the_one, *_ = await asyncio.gather(
        cards.add_node(gpus=8), *(cards.add_node(gpus=1, product="Tesla-T4") for _ in range(200))
    )  # of more than 100 nodes kube-scheduler by itself asks about some only
    await cards.put_quotas({cards.namespace: {"quota": {"H100": 8}}})
    async with as_the_chart_has_it(api_server, kube_scheduler, cards, bind):
        spec = {"schedulerName": own_scheduler(cards)}
        await add_all(cards, *(here(cards, f"p{number}", container(gpu=1), **spec) for number in range(8)))
        await everybody_was_judged(cards, 8)
        assert await cards.bound() == {f"p{number}": the_one for number in range(8)}


@pytest.mark.parametrize("bind", ["shares", "all"])
async def test_as_the_chart_has_it_of_twenty_pods_at_once_a_quota_of_eight_lets_eight_through(
    api_server: ApiServer, kube_scheduler: Path, cards: CardCluster, bind: str
) -> None:
    for _ in range(3):
        await cards.add_node(gpus=8, shared=8, memory=10)
    await cards.put_quotas({cards.namespace: {"quota": {"H100": 8}}})
    spec = {"schedulerName": own_scheduler(cards)}
    async with as_the_chart_has_it(api_server, kube_scheduler, cards, bind):
        asked = [container(gpu=1), container(core=100, memory=4)]
        await add_all(cards, *(here(cards, f"p{number}", asked[number % 2], **spec) for number in range(20)))
        await cards.eventually_bound(8)
        await everybody_was_judged(cards, 20)
        bound = await cards.bound()
        assert len(bound) == 8
        await cards.put_quotas({cards.namespace: {"quota": {"H100": 9}}})
        await cards.client.call("DELETE", f"{cards.path}/{next(iter(bound))}", {"gracePeriodSeconds": 0})
        assert len(await cards.eventually_bound(9)) == 9


async def test_as_the_chart_has_it_a_quota_holds_however_long_the_scheduler_takes_to_bind(
    api_server: ApiServer, kube_scheduler: Path, cards: CardCluster
) -> None:
    await cards.add_node(gpus=16)
    await cards.put_quotas({cards.namespace: {"quota": {"H100": 4}}})
    chart = chart_set_up(api_server, kube_scheduler, cards, "shares", {"qps": 0.5, "burst": 1})
    chart.settings["ASSUMED_S"] = "1"
    spec = {"schedulerName": own_scheduler(cards)}
    async with chart.extender() as running, chart.scheduler():
        await add_all(cards, *(here(cards, f"p{number}", container(gpu=1), **spec) for number in range(4)))
        await cards.eventually_bound(2)  # and that one waited for two seconds, as do the next ones
        await add_all(cards, *(here(cards, f"late-{number}", container(gpu=1), **spec) for number in range(4)))

        async def all_are_known() -> bool:
            return (await running.get("/metrics"))[1].count("gpu_dev_admission_assumed_pods 0.0") == 1

        await everybody_was_judged(cards, 8)
        await eventually(all_are_known, PATIENCE_S)
        assert len(await cards.bound()) == 4


@pytest.mark.parametrize("bind", ["shares", "all"])
async def test_as_the_chart_has_it_a_burst_fills_all_cards_and_none_twice(
    api_server: ApiServer, kube_scheduler: Path, cards: CardCluster, bind: str
) -> None:
    plain = {await cards.add_node(gpus=count): count for count in (1, 3, 4, 8)}
    shared = {await cards.add_node(shared=count, memory=4): count for count in (1, 2, 5)}
    spec = {"schedulerName": own_scheduler(cards)}
    async with as_the_chart_has_it(api_server, kube_scheduler, cards, bind):
        await add_all(
            cards,
            *(here(cards, f"whole-{number}", container(gpu=1), **spec) for number in range(16)),
            *(here(cards, f"share-{number}", container(core=50, memory=2), **spec) for number in range(16)),
        )
        await cards.eventually_bound(32)
        assert {node: amount for node, amount in (await amounts_by_node(cards, WHOLE)).items() if amount} == plain
        full = {node: dict.fromkeys(range(count), 1000) for node, count in shared.items()}
        assert {node: dict(sorted(of_node.items())) for node, of_node in (await cards.cards_by_node()).items()} == full
        await add_all(
            cards, here(cards, "more", container(gpu=1), **spec), here(cards, "less", container(core=1), **spec)
        )
        await everybody_was_judged(cards, 34)
        assert len(await cards.bound()) == 32


@pytest.mark.parametrize("bind", ["shares", "all"])
async def test_as_the_chart_has_it_quotas_and_cards_hold_when_the_extender_is_killed_in_a_burst(
    api_server: ApiServer, kube_scheduler: Path, cards: CardCluster, bind: str
) -> None:
    for _ in range(2):
        await cards.add_node(gpus=16, shared=16, memory=4)
    await cards.put_quotas({cards.namespace: {"quota": {"H100": 18}}})
    chart = chart_set_up(api_server, kube_scheduler, cards, bind)
    spec = {"schedulerName": own_scheduler(cards)}
    asked = [container(gpu=1), container(core=50, memory=2)]
    async with chart.scheduler():
        for number, reached in enumerate((2, 9)):
            async with chart.extender() as running:
                names = range(20 * number, 20 * number + 20)
                await add_all(cards, *(here(cards, f"p{name}", asked[name % 2], **spec) for name in names))
                await cards.eventually_bound(reached)
                running.process.kill()
        async with chart.extender():

            async def half_cards() -> int:
                whole, shares = await amounts_by_node(cards, WHOLE), await amounts_by_node(cards, CORE)
                return sum(2 * whole[node] + shares[node] // 50 for node in cards.nodes)

            async def all_given() -> bool:
                return await half_cards() >= 36

            await eventually(all_given, PATIENCE_S)
            await add_all(cards, here(cards, "last", container(core=50, memory=2), **spec))
            await everybody_was_judged(cards, 41)
            assert await half_cards() == 36
    for of_node in (await cards.cards_by_node()).values():
        assert all(milli <= 1000 for milli in of_node.values())


async def test_as_the_chart_has_it_a_volume_that_can_not_be_made_at_the_best_node_is_tried_at_others(
    api_server: ApiServer, kube_scheduler: Path, cards: CardCluster
) -> None:
    """The test is who makes volumes, and succeeds at one node alone: a scheduler asks for that after our answer."""
    nodes = [await cards.add_node(gpus=4) for _ in range(3)]
    kind = {"provisioner": "registry.test/volumes", "volumeBindingMode": "WaitForFirstConsumer"}
    classes, claims = (
        "/apis/storage.k8s.io/v1/storageclasses",
        f"/api/v1/namespaces/{cards.namespace}/persistentvolumeclaims",
    )
    await cards.client.call("POST", classes, {"metadata": {"name": cards.prefix}, **kind})
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    await cards.client.call(
        "POST", claims, {"metadata": {"name": "data"}, "spec": {**wanted, "storageClassName": cards.prefix}}
    )
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    spec = {"schedulerName": own_scheduler(cards), "volumes": volumes}
    tried: list[str] = []

    async def not_there() -> bool:
        annotations = (await cards.client.call("GET", f"{claims}/data"))["metadata"].get("annotations", {})
        node = annotations.get(SELECTED)
        if node is not None:
            tried.append(node)
            none = {"metadata": {"annotations": {SELECTED: None}}}
            await cards.client.call("PATCH", f"{claims}/data", none, content_type=MERGE)
        return len(tried) == 4

    try:
        async with as_the_chart_has_it(api_server, kube_scheduler, cards, "shares"):
            await add_all(cards, here(cards, "p", container(gpu=1), **spec))
            await eventually(not_there, PATIENCE_S)
    finally:
        await cards.client.try_call("DELETE", f"{classes}/{cards.prefix}", {})
    assert {*tried[:3]} == {*nodes}
    # A new round begins with the best of all nodes but the last one; equal nodes are in no order.
    assert tried[3] != tried[2]

"""A real kube-scheduler that calls the extender, on a real API server: pods land, quotas hold, shares share a card."""

from pathlib import Path

import pytest

from tests.clusters.card_cluster import CardCluster, container
from tests.integration.gpu_admission.kube_scheduler_world import add_all, everybody_was_judged, here, nobody_asks, why
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.real.kube_scheduler import started_kube_scheduler
from tests.programs.admission_process import PATIENCE_S, admission, scheduler_config
from tests.programs.ports import own_port
from tests.waiting import eventually


@pytest.mark.parametrize("cached", [True, False])
async def test_of_a_hundred_pods_a_quota_of_eight_lets_eight_through_and_the_others_know_why(
    api_server: ApiServer, kube_scheduler: Path, cards: CardCluster, cached: bool
) -> None:
    for _ in range(3):
        await cards.add_node(gpus=40)
    await cards.put_quotas({cards.namespace: {"quota": {"H100": 8}}})
    port = own_port()
    async with admission(api_server, port, QUOTA_NAME=cards.quota_name):
        with started_kube_scheduler(api_server, kube_scheduler, scheduler_config(api_server, port, cached=cached)):
            await add_all(cards, *(here(cards, f"p{number}", container(gpu=1)) for number in range(100)))
            await everybody_was_judged(cards, 100)
            bound = await cards.eventually_bound(8)
            assert len(bound) == 8
            left = next(f"p{number}" for number in range(100) if f"p{number}" not in bound)

            async def told() -> bool:
                return "8 of 8 H100 used; ask an administrator, or wait" in await why(cards, left)

            await eventually(told, PATIENCE_S)
            await cards.put_quotas({cards.namespace: {"quota": {"H100": 9}}})
            await cards.client.call("DELETE", f"{cards.path}/{next(iter(bound))}", {"gracePeriodSeconds": 0})
            await cards.eventually_bound(9)


async def test_shares_share_cards_and_whole_ones_stay_whole(
    api_server: ApiServer, kube_scheduler: Path, cards: CardCluster
) -> None:
    nodes = [await cards.add_node(shared=2, memory=10) for _ in range(2)]
    plain = await cards.add_node(gpus=2)
    port = own_port()
    async with admission(api_server, port, QUOTA_NAME=cards.quota_name):
        with started_kube_scheduler(api_server, kube_scheduler, scheduler_config(api_server, port)):
            await add_all(cards, here(cards, "odd", container(core=150)))

            async def told() -> bool:
                return "ask for 100 or 200" in await why(cards, "odd")

            await eventually(told, PATIENCE_S)
            await add_all(
                cards,
                *(here(cards, f"share-{number}", container(core=25, memory=2)) for number in range(8)),
                here(cards, "plugin", container(gpu=2)),
                here(cards, "plain"),
            )
            await cards.eventually_bound(10)
            await add_all(cards, here(cards, "whole", container(core=100)))
            bound = await cards.eventually_bound(11)
            by_node = await cards.cards_by_node()
            amounts = [milli for node in nodes for milli in by_node.get(node, {}).values()]
            # Eight quarters on at most three cards, however they are dealt out to two nodes, and a whole one.
            assert sum(amounts) == 3000
            assert len(amounts) <= 4
            assert max(amounts) == 1000
            [own] = (await cards.read("whole"))["metadata"]["annotations"]["tencent.com/predicate-gpu-idx-0"].split(",")
            assert by_node[bound["whole"]][int(own)] == 1000
            assert bound["plugin"] == plain
            assert "gpu-dev/cards" not in (await cards.read("plugin"))["metadata"].get("annotations", {})


async def test_killed_in_the_middle_of_binds_it_goes_on_where_it_was(
    api_server: ApiServer, kube_scheduler: Path, cards: CardCluster
) -> None:
    await cards.add_node(shared=4, memory=100)
    await cards.add_node(shared=4, memory=100)
    await cards.put_quotas({cards.namespace: {"quota": {"H100": 5}}})
    port = own_port()
    pods = 40
    with started_kube_scheduler(api_server, kube_scheduler, scheduler_config(api_server, port)):
        for limit in (3, 9):
            async with admission(api_server, port, QUOTA_NAME=cards.quota_name) as running:
                if limit == 3:
                    await add_all(
                        cards,
                        *(here(cards, f"p{number}", container(core=30, memory=1)) for number in range(pods)),
                    )
                await cards.eventually_bound(limit)
                running.process.kill()
        async with admission(api_server, port, QUOTA_NAME=cards.quota_name):
            await cards.eventually_bound(16)
            await everybody_was_judged(cards, pods)
    assert len(await cards.bound()) == 16  # 16 x 0.3 of five cards
    for of_node in (await cards.cards_by_node()).values():
        assert all(milli <= 1000 for milli in of_node.values())


async def test_a_scheduler_that_binds_by_itself_keeps_to_quotas_and_has_its_pods_marked(
    api_server: ApiServer, kube_scheduler: Path, cards: CardCluster
) -> None:
    await cards.add_node(shared=4, memory=100)
    await cards.put_quotas({cards.namespace: {"quota": {"H100": 2}}})
    port = own_port()
    async with admission(api_server, port, "--assume-at=filter", QUOTA_NAME=cards.quota_name):
        with started_kube_scheduler(api_server, kube_scheduler, scheduler_config(api_server, port, bind=False)):
            await add_all(cards, *(here(cards, f"p{number}", container(core=50, memory=2)) for number in range(10)))
            await everybody_was_judged(cards, 10)
            bound = await cards.eventually_bound(4)
            assert len(bound) == 4

            async def all_marked() -> bool:
                found = await cards.cards_by_node()
                return sum(sum(of_node.values()) for of_node in found.values()) == 2000

            await eventually(all_marked, PATIENCE_S)
            for of_node in (await cards.cards_by_node()).values():
                assert all(milli <= 1000 for milli in of_node.values())


async def test_asked_by_a_filter_alone_and_without_options_no_quota_is_passed_and_a_raised_one_is_used_at_once(
    api_server: ApiServer, kube_scheduler: Path, cards: CardCluster
) -> None:
    """As it is set up most. By itself kube-scheduler comes back to who waits after five minutes."""
    for _ in range(3):
        await cards.add_node(gpus=8)
    port = own_port()

    async def quota(most: int) -> None:
        await cards.put_quotas({cards.namespace: {"quota": {"H100": most}}})

    await quota(4)
    async with admission(api_server, port, QUOTA_NAME=cards.quota_name) as running:
        with started_kube_scheduler(api_server, kube_scheduler, scheduler_config(api_server, port, bind=False)):
            await add_all(cards, *(here(cards, f"p{number}", container(gpu=1)) for number in range(24)))
            for most in (4, 8, 12):
                await quota(most)
                await cards.eventually_bound(most)
                await everybody_was_judged(cards, 24)
                assert len(await cards.bound()) == most
                await nobody_asks(running)

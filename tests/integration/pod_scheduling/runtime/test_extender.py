"""The extender on an API server: what it answers, and what it writes."""

from datetime import UTC, datetime

import pytest

from pod_scheduling.ports.extender import NotSyncedError
from pod_scheduling.ports.pod_binding import BindRefusedError
from reservation_core.adapters.postgres.connection.engine import open_engine
from tests.clusters.card_cluster import CardCluster, card_pod, container
from tests.integration.pod_scheduling.runtime.asking import HOUR, PATIENCE_S, Starter, bind_all, binding, knows
from tests.integration.reservation_core.adapters.postgres.conftest import Seed
from tests.kubernetes.api_client import MERGE
from tests.kubernetes.fault_proxy import FaultProxy, Partition
from tests.waiting import eventually


async def test_a_share_is_written_once_with_the_binding(cards: CardCluster, start: Starter) -> None:
    node = await cards.add_node(shared=2, memory=32)
    running = await start()
    first = await cards.add(card_pod("first", container("a", core=60, memory=8), container("b", core=30, memory=4)))
    second = await cards.add(card_pod("second", container(core=50, memory=4)))
    await knows(running, first, node)
    assert running.extender.filter(first, [node, "elsewhere"]).fitting == (node,)
    await running.extender.bind(binding(first, node))
    await running.extender.bind(binding(second, node))
    said = (await cards.read("first"))["metadata"]["annotations"]
    assert said["tencent.com/predicate-gpu-idx-0"] == said["tencent.com/predicate-gpu-idx-1"] == "0"
    assert said["gpu-dev/cards"] == "0=900/12"
    assert said["tencent.com/predicate-node"] == node
    assert said["tencent.com/gpu-assigned"] == "false"
    assert len(said["tencent.com/predicate-time"]) == 19
    assert (await cards.read("second"))["metadata"]["annotations"]["tencent.com/predicate-gpu-idx-0"] == "1"
    await running.extender.bind(binding(first, node))  # asked again: it is there


async def test_racing_shares_never_get_more_of_a_card_than_there_is(cards: CardCluster, start: Starter) -> None:
    node = await cards.add_node(shared=3, memory=100)
    running = await start()
    pods = [await cards.add(card_pod(f"p{number}", container(core=30 + number, memory=1))) for number in range(20)]
    await knows(running, pods[0], node)
    bound, refused = await bind_all(running, pods, node)
    assert bound
    assert refused
    assert all(milli <= 1000 for milli in (await cards.cards_by_node())[node].values())


async def test_150_is_refused_with_a_reason(cards: CardCluster, start: Starter) -> None:
    node = await cards.add_node(shared=4, memory=8)
    running = await start()
    pod = await cards.add(card_pod("odd", container(core=150)))
    await knows(running, pod, node)
    found = running.extender.filter(pod, [node])
    assert found.fitting == ()
    assert "ask for 100 or 200" in found.unresolvable[node]
    with pytest.raises(BindRefusedError, match="ask for 100 or 200"):
        await running.extender.bind(binding(pod, node))


async def test_pods_without_gpus_pass_and_are_bound_untouched(cards: CardCluster, start: Starter) -> None:
    node = await cards.add_node()
    running = await start()
    pod = await cards.add(card_pod("plain"))
    assert running.extender.filter(pod, [node, "unknown"]).fitting == (node, "unknown")
    assert running.extender.prioritize(pod, [node, "unknown"]) == [0, 0]
    await running.extender.bind(binding(pod, node))
    assert not (await cards.read("plain"))["metadata"].get("annotations")


async def test_nothing_is_answered_before_everything_was_seen(
    cards: CardCluster, start: Starter, fault_proxy: FaultProxy
) -> None:
    pod = await cards.add(card_pod("pod", container(gpu=1)))
    fault_proxy.partition(Partition.REFUSED)
    running = await start(wait=False, url=fault_proxy.url)
    assert not running.ready()
    with pytest.raises(NotSyncedError):
        running.extender.filter(pod, ["n"])
    with pytest.raises(NotSyncedError):
        running.extender.prioritize(pod, ["n"])
    fault_proxy.heal()
    await eventually(running.ready, PATIENCE_S)


async def test_a_pod_that_brings_its_cards_along_is_given_others_where_those_are_taken(
    cards: CardCluster, start: Starter
) -> None:
    node = await cards.add_node(shared=2, memory=8)
    running = await start(assume_at="filter")
    brought = {"tencent.com/predicate-gpu-idx-0": "0", "tencent.com/predicate-time": "1", "gpu-dev/cards": "0=600"}
    pods = []
    for name in ("one", "other"):
        thing = card_pod(name, container(core=60))
        thing["metadata"]["annotations"] = {**brought, "tencent.com/gpu-assigned": "false"}
        pods.append(await cards.add(thing))
    await knows(running, pods[0], node)
    await eventually(lambda: running.scheduling.waiting == 2, PATIENCE_S)
    for name in ("one", "other"):
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        await cards.client.call("POST", f"{cards.path}/{name}/binding", body)

    async def apart() -> bool:
        return (await cards.cards_by_node())[node] == {0: 600, 1: 600}

    await eventually(apart, PATIENCE_S)
    for name in ("one", "other"):
        said = (await cards.read(name))["metadata"]["annotations"]
        assert f"{said['tencent.com/predicate-gpu-idx-0']}=600" == said["gpu-dev/cards"]
        assert said["tencent.com/predicate-node"] == node
    await eventually(lambda: running.numbers()["marked_total"] >= 2, PATIENCE_S)  # it hears of it after the server
    assert running.numbers()["marked_total"] == 2


async def test_a_claim_ends_by_itself(cards: CardCluster, start: Starter) -> None:
    node = await cards.add_node(gpus=4)
    await cards.put_quotas({cards.namespace: {"quota": {"H100": 1}}})
    running = await start(assume_at="filter", assumed_s=1)
    one = await cards.add(card_pod("one", container(gpu=1)))
    other = await cards.add(card_pod("other", container(gpu=1)))
    await knows(running, one, node)
    running.extender.filter(one, [node])
    await eventually(lambda: running.extender.filter(other, [node]).fitting == (node,), PATIENCE_S)


async def test_that_it_answers_by_old_news_is_told_until_it_follows_again(
    cards: CardCluster, start: Starter, fault_proxy: FaultProxy
) -> None:
    node = await cards.add_node(gpus=1)
    running = await start(url=fault_proxy.url)
    pod = await cards.add(card_pod("pod", container(gpu=1)))
    await knows(running, pod, node)
    await eventually(lambda: running.problems() == [], PATIENCE_S)
    fault_proxy.partition(Partition.REFUSED)
    (problem,) = await eventually(running.problems, PATIENCE_S)
    assert "may be out of date" in problem
    assert running.ready()
    assert running.extender.filter(pod, [node]).fitting == (node,)
    fault_proxy.heal()
    await eventually(lambda: running.problems() == [], PATIENCE_S)


async def test_a_node_that_changes_its_model_or_goes_counts_as_it_is_now(cards: CardCluster, start: Starter) -> None:
    node = await cards.add_node(gpus=4, product="Tesla-T4", pool="public")
    await cards.put_quotas({cards.namespace: {"quota": {"H100": 1}, "pool": ["public"]}})
    running = await start()
    pod = await cards.add(card_pod("pod", container(gpu=1)))
    await knows(running, pod, node)
    assert "has no quota for GPUs Tesla-T4" in running.extender.filter(pod, [node]).unresolvable[node]
    label = {"metadata": {"labels": {"nvidia.com/gpu.product": "NVIDIA-H100-NVL"}}}
    await cards.client.call("PATCH", f"/api/v1/nodes/{node}", label, content_type=MERGE)
    await eventually(lambda: "NVL" in str(running.extender.filter(pod, [node]).unresolvable), PATIENCE_S)
    label = {"metadata": {"labels": {"nvidia.com/gpu.product": "NVIDIA-H100-PCIe"}}}
    await cards.client.call("PATCH", f"/api/v1/nodes/{node}", label, content_type=MERGE)
    await eventually(lambda: running.extender.filter(pod, [node]).fitting == (node,), PATIENCE_S)
    label = {"metadata": {"labels": {"gpu-pool": None}}}
    await cards.client.call("PATCH", f"/api/v1/nodes/{node}", label, content_type=MERGE)
    await eventually(lambda: "in no pool" in str(running.extender.filter(pod, [node]).unresolvable), PATIENCE_S)
    await cards.client.call("DELETE", f"/api/v1/nodes/{node}", {})
    await eventually(lambda: "not seen" in str(running.extender.filter(pod, [node]).failed), PATIENCE_S)


async def test_cards_that_the_ledger_has_promised_are_kept_off(
    cards: CardCluster, start: Starter, database_url: str
) -> None:
    whole, shared = await cards.add_node(gpus=3), await cards.add_node(shared=2, memory=8)
    engine = open_engine(database_url, pool=2, application="test")
    try:
        seed = Seed(engine)
        user, now = await seed.user(), datetime.now(UTC)
        job = await seed.job("job-b1", user, "running", attempt=1, started_at=now, ends_at=now + 2 * HOUR)
        for name, count in ((whole, 3), (shared, 2)):
            first, *_ = await seed.node(name, cards=count)
            await seed.allocate(job, first, now + HOUR, now + 2 * HOUR, held=False)
        running = await start(database_url=database_url, ledger_s=0.2)
        share = await cards.add(card_pod("share", container(core=30, memory=1)))
        three = await cards.add(card_pod("three", container(gpu=3)))
        await knows(running, three, whole, shared)
        found = running.extender.filter(three, [whole])
        assert found.failed == {whole: "2 GPUs are free and 3 are asked for, 1 GPU being promised; wait"}
        await running.extender.bind(binding(share, shared))
        assert (await cards.cards_by_node())[shared] == {1: 300}
        await seed.run("UPDATE allocations SET released_at = clock_timestamp()")
        await eventually(lambda: running.extender.filter(three, [whole]).fitting == (whole,), PATIENCE_S)
    finally:
        await engine.dispose()

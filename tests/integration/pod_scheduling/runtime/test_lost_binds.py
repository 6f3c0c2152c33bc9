"""Binds that are lost, refused or left behind, and who takes over."""

from contextlib import suppress

import pytest

from pod_scheduling.ports.extender import NotSyncedError
from pod_scheduling.ports.pod_binding import BindRefusedError
from tests.clusters.card_cluster import CardCluster, card_pod, container
from tests.integration.pod_scheduling.runtime.asking import PATIENCE_S, Starter, binding, knows
from tests.kubernetes.fault_proxy import FaultProxy, Harm, Partition
from tests.waiting import eventually


@pytest.mark.parametrize("harm", [Harm.HANG_AFTER, Harm.DROP_ANSWER])
async def test_a_bind_whose_answer_was_lost_is_found_done(
    cards: CardCluster, start: Starter, fault_proxy: FaultProxy, harm: Harm
) -> None:
    node = await cards.add_node(shared=1, memory=8)
    running = await start(url=fault_proxy.url)
    pod = await cards.add(card_pod("pod", container(core=60)))
    rival = await cards.add(card_pod("rival", container(core=60)))
    await knows(running, pod, node)
    fault_proxy.inject(harm, "POST", "/pods/pod/binding", times=1)
    with suppress(BindRefusedError):
        await running.extender.bind(binding(pod, node))
    assert running.extender.filter(rival, [node]).fitting == ()

    async def found_done() -> bool:
        with suppress(BindRefusedError):  # a busy machine answers too late, and is asked once more
            await running.extender.bind(binding(pod, node))
            return True
        return False

    await eventually(found_done, PATIENCE_S)
    assert await cards.bound() == {"pod": node}
    assert (await cards.cards_by_node())[node] == {0: 600}
    assert running.extender.filter(rival, [node]).fitting == ()


async def test_a_bind_that_never_came_through_counts_until_that_is_known(
    cards: CardCluster, start: Starter, fault_proxy: FaultProxy
) -> None:
    node, other = await cards.add_node(gpus=1), await cards.add_node(gpus=1)
    await cards.put_quotas({cards.namespace: {"quota": {"H100": 1}}})
    running = await start(url=fault_proxy.url)
    pod = await cards.add(card_pod("pod", container(gpu=1)))
    rival = await cards.add(card_pod("rival", container(gpu=1)))
    await knows(running, pod, node, other)
    fault_proxy.inject(Harm.HANG, "POST", "/pods/pod/binding", times=1)
    with pytest.raises(BindRefusedError, match="not known"):
        await running.extender.bind(binding(pod, node))
    assert running.extender.filter(rival, [other]).fitting == ()
    assert running.extender.filter(pod, [node, other]).fitting == (node, other)
    await running.extender.bind(binding(pod, other))  # waits until the first one is known not to have been
    assert await cards.bound() == {"pod": other}


async def test_what_was_not_bound_is_free_again_without_being_asked(
    cards: CardCluster, start: Starter, fault_proxy: FaultProxy
) -> None:
    node = await cards.add_node(gpus=1)
    running = await start(url=fault_proxy.url)
    pod = await cards.add(card_pod("pod", container(gpu=1)))
    rival = await cards.add(card_pod("rival", container(gpu=1)))
    await knows(running, pod, node)
    fault_proxy.inject(Harm.HANG, "POST", "/pods/pod/binding", times=1)
    with pytest.raises(BindRefusedError):
        await running.extender.bind(binding(pod, node))
    await eventually(lambda: running.extender.filter(rival, [node]).fitting == (node,), PATIENCE_S)
    assert running.numbers()["binds_given_up_total"] == 1


async def test_a_bind_that_the_server_refuses_counts_no_more(
    cards: CardCluster, start: Starter, fault_proxy: FaultProxy
) -> None:
    node = await cards.add_node(gpus=1)
    running = await start(url=fault_proxy.url)
    pod = await cards.add(card_pod("pod", container(gpu=1)))
    rival = await cards.add(card_pod("rival", container(gpu=1)))
    await knows(running, pod, node)
    fault_proxy.inject(Harm.ANSWER, "POST", "/pods/pod/binding", code=403, times=1)
    with pytest.raises(BindRefusedError, match="403"):
        await running.extender.bind(binding(pod, node))
    assert running.extender.filter(rival, [node]).fitting == (node,)


async def test_one_of_two_replicas_answers_and_another_takes_over(
    cards: CardCluster, start: Starter, fault_proxy: FaultProxy
) -> None:
    lease = {"leader_elect": True, "lease_s": 6, "renew_within_s": 4, "retry_s": 0.3}
    node = await cards.add_node(gpus=2)
    first = await start(url=fault_proxy.url, **lease)
    pod = await cards.add(card_pod("pod", container(gpu=1)))
    await knows(first, pod, node)
    second = await start(wait=False, **lease)
    await eventually(lambda: second.scheduling.waiting > 0, PATIENCE_S)
    assert not second.ready()
    with pytest.raises(NotSyncedError):
        await second.extender.bind(binding(pod, node))
    fault_proxy.partition(Partition.REFUSED)
    await eventually(second.ready, PATIENCE_S)
    assert not first.ready()
    await second.extender.bind(binding(pod, node))
    assert await cards.bound() == {"pod": node}


async def test_a_new_process_knows_the_cards_that_the_one_before_it_gave(cards: CardCluster, start: Starter) -> None:
    node = await cards.add_node(shared=2, memory=8)
    first = await start()
    pod = await cards.add(card_pod("pod", container(core=60, memory=8), initContainers=[container("init", core=80)]))
    await knows(first, pod, node)
    await first.extender.bind(binding(pod, node))
    assert (await cards.cards_by_node())[node] == {0: 800}
    second = await start()
    small = await cards.add(card_pod("small", container(core=30)))
    await knows(second, small, node)
    await second.extender.bind(binding(small, node))
    assert (await cards.read("small"))["metadata"]["annotations"]["tencent.com/predicate-gpu-idx-0"] == "1"

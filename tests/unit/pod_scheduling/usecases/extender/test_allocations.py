"""A scheduler that binds by itself tells what it allocates and takes back, as Volcano does."""

import asyncio
import random

import pytest

from pod_scheduling.ports.card_cluster import CardNodeSeen
from pod_scheduling.ports.extender import NotSyncedError
from pod_scheduling.ports.pod_binding import NodeGone
from tests.unit.pod_scheduling.usecases.extender.allocating import (
    ONE,
    OTHER,
    RULES,
    allocate,
    take_back,
    told,
    told_without_cards,
)
from tests.unit.pod_scheduling.usecases.extender.extender_world import Replica, pod, world
from tests.unit.pod_scheduling.usecases.extender.scripted_card_cluster import Truth, View, card_breaches
from tests.virtual_time import run_virtually


def test_what_is_allocated_counts_there_alone() -> None:
    async def story(_truth: Truth, replica: Replica) -> None:
        assert replica.fits(ONE, "n2", "n3") == ("n2", "n3")
        assert replica.fits(OTHER, "n2", "n3") == ()  # it may be either
        assert allocate(replica, ONE, "n3") is None
        assert replica.fits(OTHER, "n2", "n3") == ("n2",)
        assert replica.extender.assumed == 1

    told(story)


def test_what_passed_before_is_judged_once_more() -> None:
    async def story(_truth: Truth, replica: Replica) -> None:
        assert allocate(replica, ONE, "n2") is None
        why = allocate(replica, OTHER, "n2")
        assert why == "GPU quota of namespace a: 2 of 2 Tesla-T4 used; ask an administrator, or wait"
        assert allocate(replica, OTHER, "nowhere") == (
            "gpu-admission has not seen this node yet; the pod is tried again"
        )
        assert allocate(replica, ONE, "n2") is None  # again: it does not stand in its own way

    told(story)


def test_what_is_taken_back_counts_no_more_at_once() -> None:
    async def story(_truth: Truth, replica: Replica) -> None:
        for _ in range(3):
            assert replica.fits(ONE, "n2", "n3") == ("n2", "n3")
            assert allocate(replica, ONE, "n2") is None
            take_back(replica, ONE)
            assert replica.fits(OTHER, "n2", "n3") == ("n2", "n3")
            assert allocate(replica, OTHER, "n2") is None
            take_back(replica, OTHER)
        assert replica.extender.assumed == replica.extender.claimed == 0

    told(story)


def test_what_was_never_allocated_can_be_taken_back() -> None:
    async def story(_truth: Truth, replica: Replica) -> None:
        assert replica.fits(ONE, "n2") == ("n2",)
        take_back(replica, ONE)
        assert replica.extender.claimed == 0
        take_back(replica, pod("unknown", gpu=1))

    told(story)


def test_who_is_evicted_counts_until_it_is_gone() -> None:
    async def story(truth: Truth, replica: Replica) -> None:
        assert allocate(replica, ONE, "n2") is None
        take_back(replica, ONE, waits=False)  # it was bound, which was not seen yet
        assert replica.fits(OTHER, "n2") == ()
        truth.bind("one", "n2", {})
        await asyncio.sleep(1)
        take_back(replica, ONE)
        take_back(replica, ONE, waits=False)
        assert replica.fits(OTHER, "n2") == ()
        truth.drop_pod("one")
        await asyncio.sleep(1)
        assert replica.fits(OTHER, "n2") == ("n2",)

    told(story)


def test_who_only_waits_for_what_others_leave_is_judged_and_does_not_count() -> None:
    async def story(_truth: Truth, replica: Replica) -> None:
        assert replica.fits(ONE, "n2", "n3") == ("n2", "n3")
        assert allocate(replica, ONE, "n2", pipelined=True) is None
        assert replica.extender.assumed == replica.extender.claimed == 0
        assert replica.fits(OTHER, "n2") == ("n2",)
        assert allocate(replica, OTHER, "n2") is None
        why = allocate(replica, ONE, "n2", pipelined=True)
        assert why == "GPU quota of namespace a: 2 of 2 Tesla-T4 used; ask an administrator, or wait"

    told(story)


def test_who_is_on_its_node_and_is_not_evicted_after_all_is_waited_for_no_more() -> None:
    async def story(truth: Truth, replica: Replica) -> None:
        truth.bind("one", "n2", {})
        await asyncio.sleep(1)
        take_back(replica, ONE, waits=False)
        assert allocate(replica, ONE, "n2") is None
        assert replica.extender.assumed == 0
        assert replica.fits(OTHER, "n2") == ()

    told(story)


@pytest.mark.parametrize("asked_again", [True, False])
def test_what_is_never_bound_counts_no_more_in_the_end(asked_again: bool) -> None:
    async def story(_truth: Truth, replica: Replica) -> None:
        assert allocate(replica, ONE, "n2") is None
        await asyncio.sleep(60)
        assert replica.fits(OTHER, "n2") == ()
        if asked_again:
            assert replica.fits(ONE, "n1") == ()
            await asyncio.sleep(RULES.unclear_s + 3)
        else:
            await asyncio.sleep(RULES.binding_s - 55)
        assert replica.fits(OTHER, "n2") == ("n2",)

    told(story)


def test_a_share_has_its_cards_from_its_allocation_on() -> None:
    async def story(truth: Truth, replica: Replica) -> None:
        shares = [pod(f"s{number}", "c", core=60) for number in range(3)]
        for share in shares:
            truth.add_pod(share)
        assert [allocate(replica, share, "n0") for share in shares] == [
            None,
            None,
            "no GPU has a share of 0.6 free, the most is 0.4; wait",
        ]
        for share in (shares[1], shares[0]):
            truth.bind(share.uid, "n0", {})
        await asyncio.sleep(2)
        assert card_breaches(truth, "n0") == []

    told_without_cards(story)


def test_who_asks_for_no_cards_is_nobodys_business() -> None:
    async def story(_truth: Truth, replica: Replica) -> None:
        assert allocate(replica, pod("plain"), "n2") is None
        assert allocate(replica, pod("odd", core=150), "n0") is not None
        assert replica.extender.assumed == 0

    told(story)


def test_where_we_bind_an_allocation_is_judged_and_leaves_nothing_behind() -> None:
    async def work() -> None:
        truth = world()
        replica = Replica(View(truth, random.Random(1), lag_s=0))
        await asyncio.sleep(10)
        assert allocate(replica, ONE, "n2") is None
        assert allocate(replica, pod("great", gpu=3), "n2") is not None
        assert replica.extender.assumed == 0
        await replica.end()

    run_virtually(work())


def test_before_all_was_seen_nothing_is_allocated_and_all_can_be_taken_back() -> None:
    async def work() -> None:
        replica = Replica(View(world(), random.Random(1), lag_s=0), RULES)
        with pytest.raises(NotSyncedError):
            allocate(replica, ONE, "n2")
        take_back(replica, ONE)
        await replica.end()

    run_virtually(work())


def test_a_share_that_may_come_holds_room_on_each_of_its_nodes_until_it_is_somewhere() -> None:
    async def story(truth: Truth, replica: Replica) -> None:
        shares = [pod(f"s{number}", "c", core=60) for number in range(4)]
        for share in shares:
            truth.add_pod(share)
        for share in shares[:2]:
            assert replica.fits(share, "n0", "n1") == ("n0", "n1")
        found = replica.extender.filter({"pod": shares[2]}, ("n0", "n1"))
        assert set(found.failed.values()) == {
            "the GPUs have no room for the pod beside 2 other pods that are just being scheduled; wait"
        }
        found = replica.extender.filter({"pod": shares[2]}, ("n0", "n2", "nowhere"))
        assert [*found.failed] == ["nowhere", "n0"]
        assert found.unresolvable == {"n2": "the node offers no shares of GPUs"}
        assert replica.fits(pod("small", "c", core=30), "n0") == ("n0",)
        assert replica.fits(pod("whole", "c", gpu=1), "n2") == ("n2",)
        for share in shares[:2]:
            assert replica.fits(share, "n0", "n1") == ("n0", "n1")  # asked again
            truth.bind(share.uid, "n0", {})
        await asyncio.sleep(2)
        assert replica.fits(shares[2], "n0", "n1") == ("n1",)
        await asyncio.sleep(40)
        assert replica.fits(shares[3], "n0", "n1") == ("n1",)
        assert replica.extender.claimed == 1

    told_without_cards(story)


def test_of_a_node_that_is_gone_nothing_is_remembered() -> None:
    async def story(truth: Truth, replica: Replica) -> None:
        shares = [pod(f"s{number}", "c", core=60) for number in range(3)]
        for share in shares:
            truth.add_pod(share)
        for share in shares[:2]:
            assert replica.fits(share, "n0") == ("n0",)
        assert replica.fits(shares[2], "n0") == ()
        replica.extender.see(NodeGone("n0"))
        replica.extender.see(CardNodeSeen(truth.nodes["n0"]))  # a new one by the old name
        assert replica.fits(shares[2], "n0") == ("n0",)

    told_without_cards(story)

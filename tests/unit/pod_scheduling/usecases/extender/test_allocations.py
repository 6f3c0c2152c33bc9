"""A scheduler that binds by itself tells what it allocates and takes back, as Volcano does."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pod_scheduling.domain.extender.cards_in_use import CardPod
from pod_scheduling.ports.card_cluster import CardNodeSeen
from pod_scheduling.ports.extender import AssumeAt, NotSyncedError
from pod_scheduling.ports.pod_binding import NodeGone
from pod_scheduling.usecases.extender.rules import ExtendRules
from tests.examples import examples
from tests.unit.pod_scheduling.usecases.extender.extender_world import Replica, pod, world
from tests.unit.pod_scheduling.usecases.extender.scripted_card_cluster import Truth, View, card_breaches, quota_breaches
from tests.virtual_time import run_virtually

RULES = ExtendRules(AssumeAt.FILTER)
ONE, OTHER = pod("one", gpu=2), pod("other", gpu=2)
"""Of a namespace that may have two T4 (n2) and three H100 (n3)."""


def told(story: Callable[[Truth, Replica], Awaitable[None]]) -> None:
    async def work() -> None:
        truth = world()
        replica = Replica(View(truth, random.Random(1), lag_s=0), RULES)
        await asyncio.sleep(10)
        for listed_pod in (ONE, OTHER):
            truth.add_pod(listed_pod)
        await asyncio.sleep(1)
        await story(truth, replica)
        assert truth.breaches == []
        await replica.end()

    run_virtually(work())


def told_without_cards(story: Callable[[Truth, Replica], Awaitable[None]]) -> None:
    """Binds here come without cards: that they have none yet is no breach."""

    async def without_breaches(truth: Truth, replica: Replica) -> None:
        await story(truth, replica)
        truth.breaches = [breach for breach in truth.breaches if "has no cards" not in breach]

    told(without_breaches)


async def keeps_out_while_it_is_unclear(replica: Replica) -> None:
    """What may still be bound counts for so long, and no longer."""
    await asyncio.sleep(RULES.unclear_s - 2)
    assert replica.fits(OTHER, "n2") == ()
    await asyncio.sleep(4)
    assert replica.fits(OTHER, "n2") == ("n2",)


def allocate(replica: Replica, asking: CardPod, node: str, *, pipelined: bool = False) -> str | None:
    return replica.extender.allocate({"pod": asking}, node, pipelined=pipelined)


def take_back(replica: Replica, asking: CardPod, *, waits: bool = True) -> None:
    replica.extender.deallocate({"pod": asking}, waits=waits)


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


def test_what_may_have_been_bound_before_is_not_over_when_the_next_try_is_taken_back() -> None:
    async def story(truth: Truth, replica: Replica) -> None:
        assert allocate(replica, ONE, "n2") is None
        await asyncio.sleep(1)  # a bind was asked for, and not answered: it is tried anew
        assert replica.fits(ONE, "n2") == ("n2",)
        assert allocate(replica, ONE, "n2") is None
        take_back(replica, ONE)
        await asyncio.sleep(RULES.unclear_s - 2)
        assert replica.fits(OTHER, "n2") == ()
        await asyncio.sleep(RULES.assumed_s)
        assert replica.fits(OTHER, "n2") == ("n2",)
        assert truth.pods["one"].node is None

    told(story)


def test_what_we_are_binding_is_not_taken_back() -> None:
    async def story(_truth: Truth, replica: Replica) -> None:
        binding = asyncio.create_task(replica.bind(ONE, "n2"))
        await asyncio.sleep(0)
        take_back(replica, ONE)
        assert replica.fits(OTHER, "n2") == ()
        await binding

    told(story)


def test_what_may_have_been_bound_before_is_over_however_often_it_is_tried_since() -> None:
    async def story(_truth: Truth, replica: Replica) -> None:
        assert allocate(replica, ONE, "n2") is None
        await asyncio.sleep(1)  # a bind was asked for, and came to nothing
        kept_out = 0
        for _ in range(60):  # its gang has not enough for all any more
            assert replica.fits(ONE, "n2") == ("n2",)
            assert allocate(replica, ONE, "n2") is None
            take_back(replica, ONE)
            kept_out += replica.fits(OTHER, "n2") == ()
            take_back(replica, OTHER)
            await asyncio.sleep(1)
        assert RULES.unclear_s <= kept_out <= RULES.unclear_s + 2

    told(story)


def test_what_may_have_been_bound_before_is_not_over_when_the_next_node_is_refused() -> None:
    async def story(_truth: Truth, replica: Replica) -> None:
        assert allocate(replica, ONE, "n2") is None
        await asyncio.sleep(1)  # a bind was asked for, and not answered: it is tried anew
        assert replica.fits(ONE, "n2") == ("n2",)
        assert allocate(replica, ONE, "nowhere") is not None
        take_back(replica, ONE)
        await keeps_out_while_it_is_unclear(replica)

    told(story)


def test_who_is_tried_a_third_time_may_still_be_bound_as_it_was_tried_the_second_time() -> None:
    async def story(_truth: Truth, replica: Replica) -> None:
        assert allocate(replica, ONE, "n2") is None
        for _ in range(2):
            await asyncio.sleep(60)  # a bind was asked for, and not answered: it is tried anew
            assert replica.fits(ONE, "n2") == ("n2",)
            assert allocate(replica, ONE, "n2") is None
        take_back(replica, ONE)
        await keeps_out_while_it_is_unclear(replica)

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


def test_what_may_have_been_bound_is_not_over_by_being_given_elsewhere_without_a_question() -> None:
    async def story(_truth: Truth, replica: Replica) -> None:
        assert allocate(replica, ONE, "n2") is None
        await asyncio.sleep(1)
        assert allocate(replica, ONE, "n2") is None
        take_back(replica, ONE)
        await asyncio.sleep(RULES.unclear_s - 2)
        assert replica.fits(OTHER, "n2") == ()

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


# --- Shares of a Volcano that only asks.


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


# --- Gangs.


@dataclass
class Volcano:
    """Sessions one after another; in each all gangs that wait are tried, each for all of its pods or none."""

    truth: Truth
    replica: Replica
    chance: random.Random
    waiting: list[list[CardPod]] = field(default_factory=list)
    binds: list[asyncio.Task[None]] = field(default_factory=list)

    def add_gang(self, number: int) -> None:
        amounts = self.chance.choice([{"gpu": 1}, {"gpu": 2}, {"core": self.chance.randrange(1, 101), "memory": 1}])
        namespace = self.chance.choice("abc")
        gang = [pod(f"g{number}-{rank}", namespace, **amounts) for rank in range(self.chance.choice([1, 1, 2, 6]))]
        for listed_pod in gang:
            self.truth.add_pod(listed_pod)
        self.waiting.append(gang)

    async def sessions(self, count: int) -> None:
        for _ in range(count):
            for gang in self.chance.sample(self.waiting, len(self.waiting)):
                self.try_one(gang)
            await asyncio.sleep(self.chance.choice([0.1, 1, 5]))

    def try_one(self, gang: list[CardPod]) -> bool:
        given: list[tuple[CardPod, str]] = []
        for asking in gang:
            node = self.node_for(asking)
            if node is None:
                for former, _ in reversed(given):
                    take_back(self.replica, former)
                return False
            given.append((asking, node))
        self.binds += [asyncio.create_task(self.bind(asking, node)) for asking, node in given]
        self.waiting.remove(gang)
        return True

    def node_for(self, asking: CardPod) -> str | None:
        fitting = [name for name in sorted(self.truth.nodes) if self.replica.fits(asking, name)]
        node = self.chance.choice(fitting) if fitting else None
        if node is None:
            return None
        why = allocate(self.replica, asking, node)
        assert why is None, why  # nobody else has asked since
        return node

    async def bind(self, asking: CardPod, node: str) -> None:
        await asyncio.sleep(self.chance.choice([0, 0.3, 4]))
        if self.chance.random() < 0.2:
            self.waiting.append([asking])  # it has failed, and the gang has enough without it
            return
        self.truth.pods[asking.uid].node = node
        self.truth.touch(asking.uid)
        self.truth.breaches += quota_breaches(self.truth, asking.namespace)


@given(st.integers(0, 2**32))
@examples(30)
def test_whatever_gangs_are_tried_nothing_is_overdrawn_and_nobody_is_kept_out(seed: int) -> None:
    async def work() -> None:
        chance = random.Random(seed)
        truth = world()
        view = View(truth, random.Random(seed), harm=chance.choice([0.0, 0.3]), lag_s=chance.choice([0.05, 3]))
        volcano = Volcano(truth, Replica(view, RULES), chance)
        await asyncio.sleep(10)
        for number in range(12):
            volcano.add_gang(number)
        await volcano.sessions(30)
        view.harm = 0
        await asyncio.sleep(60)
        await volcano.sessions(20)
        await asyncio.sleep(60)
        assert truth.breaches == []
        assert view.told == []  # there was a card for each
        for name in truth.models:
            assert card_breaches(truth, name) == []
        extender = volcano.replica.extender
        assert extender.assumed == extender.claimed == 0
        for gang in list(volcano.waiting):
            assert not volcano.try_one(gang)
        for bind in volcano.binds:
            assert bind.exception() is None
        await volcano.replica.end()

    run_virtually(work())

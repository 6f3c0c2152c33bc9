"""Where schedulers bind by themselves: however long they take, who was let through counts until they give it up."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from pod_scheduling.domain.extender.cards_in_use import CardPod
from pod_scheduling.ports.extender import AssumeAt, Candidates
from pod_scheduling.usecases.extender.rules import ExtendRules
from tests.unit.pod_scheduling.usecases.extender.extender_world import BEST_AT_ONCE, Replica, pod, world
from tests.unit.pod_scheduling.usecases.extender.scripted_card_cluster import Truth, View
from tests.virtual_time import run_virtually

ONE, OTHER = pod("one", gpu=2), pod("other", gpu=2)
"""Both of a namespace whose quota has room for one of them."""

Story = Callable[[Truth, Replica, CardPod], Awaitable[None]]


def told(story: Story, rules: ExtendRules, asking: CardPod) -> None:
    """Tell a story that begins when this pod was let through."""

    async def work() -> None:
        truth = world()
        replica = Replica(View(truth, random.Random(1), lag_s=0), rules)
        await asyncio.sleep(10)
        truth.add_pod(asking)
        truth.add_pod(OTHER)
        await asyncio.sleep(1)
        assert replica.chosen(asking, "n2") == ("n2",)
        assert replica.chosen(OTHER, "n2") == ()
        await story(truth, replica, asking)
        assert truth.breaches == []
        await replica.end()

    run_virtually(work())


best = pytest.mark.parametrize(
    ("rules", "asking"),
    [
        (BEST_AT_ONCE, ONE),
        (BEST_AT_ONCE, replace(ONE, has_preferences=True)),
        (ExtendRules(AssumeAt.FILTER, Candidates.ALL), ONE),
    ],
    ids=["best", "wishes", "all"],
)


@best
def test_who_is_bound_late_counts_until_then(rules: ExtendRules, asking: CardPod) -> None:
    async def story(truth: Truth, replica: Replica, asking: CardPod) -> None:
        for _ in range(60):  # its volume is made, or its scheduler has thousands of others to bind first
            await asyncio.sleep(10)
            assert replica.chosen(OTHER, "n2") == ()
        truth.bind(asking.uid, "n2", {})
        await asyncio.sleep(100)
        assert replica.chosen(OTHER, "n2") == ()

    told(story, rules, asking)


@best
def test_who_is_put_off_counts_no_more_soon(rules: ExtendRules, asking: CardPod) -> None:
    async def story(truth: Truth, replica: Replica, asking: CardPod) -> None:
        await asyncio.sleep(20)
        truth.put_off(asking.uid)
        await asyncio.sleep(1)
        assert replica.chosen(OTHER, "n2") == ()  # that may be the news of what was before
        await asyncio.sleep(15)
        assert replica.chosen(OTHER, "n2") == ("n2",)

    told(story, rules, asking)


@best
def test_what_was_written_on_it_before_does_not_put_it_off(rules: ExtendRules, asking: CardPod) -> None:
    async def story(truth: Truth, replica: Replica, asking: CardPod) -> None:
        truth.put_off(asking.uid)
        await asyncio.sleep(10)
        assert replica.chosen(asking, "n2") == ("n2",)
        for _ in range(60):
            truth.touch(asking.uid)
            await asyncio.sleep(10)
            assert replica.chosen(OTHER, "n2") == ()

    told(story, rules, asking)


@best
def test_who_is_asked_about_again_and_finds_nothing_is_not_being_bound(rules: ExtendRules, asking: CardPod) -> None:
    async def story(truth: Truth, replica: Replica, asking: CardPod) -> None:
        await asyncio.sleep(100)
        assert replica.chosen(asking, "unheard-of") == ()
        assert replica.chosen(OTHER, "n2") == ()  # what was asked for last may still be carried out
        for _ in range(40):  # however often that is
            assert replica.chosen(asking, "unheard-of") == ()
            await asyncio.sleep(1)
        assert replica.chosen(OTHER, "n2") == ("n2",)

    told(story, rules, asking)


@best
def test_of_whom_nothing_is_heard_counts_no_more_in_the_end(rules: ExtendRules, asking: CardPod) -> None:
    async def story(truth: Truth, replica: Replica, asking: CardPod) -> None:
        await asyncio.sleep(720)
        assert replica.chosen(OTHER, "n2") == ("n2",)

    told(story, rules, asking)


@best
def test_who_is_nowhere_counts_no_more_soon(rules: ExtendRules, asking: CardPod) -> None:
    async def story(truth: Truth, replica: Replica, asking: CardPod) -> None:
        nobody = replace(asking, uid="nobody", name="nobody")
        truth.put_off(asking.uid)
        await asyncio.sleep(40)
        assert replica.chosen(nobody, "n2") == ("n2",)
        await asyncio.sleep(20)
        assert replica.chosen(OTHER, "n2") == ()
        await asyncio.sleep(20)
        assert replica.chosen(OTHER, "n2") == ("n2",)

    told(story, rules, asking)


@pytest.mark.parametrize("lists", ["soon", "late"])
@pytest.mark.parametrize("ends", ["bound", "put off"])
def test_whom_its_scheduler_was_binding_when_we_began_counts_where_that_says_so(ends: str, lists: str) -> None:
    async def work() -> None:
        truth = world()
        truth.add_pod(ONE)
        truth.add_pod(OTHER)
        truth.put_off("one")
        truth.pods["one"].nominated = "n2"
        view = View(truth, random.Random(1), lag_s=0)
        if lists == "late":
            view.listed_after_s = 20
        replica = Replica(view, BEST_AT_ONCE)
        await asyncio.sleep(25)
        for _ in range(10):
            assert replica.chosen(OTHER, "n2") == ()
            await asyncio.sleep(10)
        if ends == "bound":
            truth.bind("one", "n2", {})
            await asyncio.sleep(1)
            assert replica.chosen(OTHER, "n2") == ()
        else:
            truth.pods["one"].nominated = None
            truth.touch("one")
            await asyncio.sleep(10)
            assert replica.chosen(OTHER, "n2") == ("n2",)
        assert truth.breaches == []
        await replica.end()

    run_virtually(work())


def test_who_is_nominated_later_on_counts_where_it_was_told() -> None:
    async def work() -> None:
        truth = world()
        replica = Replica(View(truth, random.Random(1), lag_s=0), BEST_AT_ONCE)
        await asyncio.sleep(10)
        truth.add_pod(ONE)
        truth.pods["one"].nominated = "n2"  # others are evicted for it; it has not been asked about since
        truth.touch("one")
        await asyncio.sleep(1)
        assert replica.extender.assumed == 0
        await replica.end()

    run_virtually(work())


@pytest.mark.parametrize("assume_at", AssumeAt)
def test_who_comes_back_from_its_node_is_told_another_and_at_last_the_first_again(assume_at: AssumeAt) -> None:
    async def work() -> None:
        truth = world()
        replica = Replica(View(truth, random.Random(1), lag_s=0), ExtendRules(assume_at, Candidates.BEST))
        await asyncio.sleep(10)
        asking = pod("one", "c", gpu=1)
        truth.add_pod(asking)
        there = ("n2", "n3", "n0")  # on the last there are no such cards
        been = []
        for _ in range(5):
            been.append(replica.chosen(asking, *there))
            assert replica.chosen(asking, *been[-1]) == been[-1]  # asked for another resource, in the same go
            await asyncio.sleep(100)
        assert been == [been[0], been[1], been[0], been[1], been[0]]
        assert {*been[0], *been[1]} == {"n2", "n3"}
        truth.bind("one", *been[0], {})
        await asyncio.sleep(1)
        assert len(replica.extender._suggested) == 0
        truth.drop_pod("one")
        await asyncio.sleep(1)
        replica.chosen(asking, *there)  # late
        assert len(replica.extender._suggested) == 1
        await replica.end()

    run_virtually(work())

"""Whatever happens in whatever order, however binds end, and whenever the extender is killed and begins anew."""

import asyncio
import random
from contextlib import suppress
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pod_scheduling.domain.extender.cards_in_use import CardPod
from pod_scheduling.ports.extender import AssumeAt, NotSyncedError
from pod_scheduling.ports.pod_binding import BindRefusedError, PodChangedError
from pod_scheduling.usecases.extender.rules import ExtendRules
from reservation_core.domain.cards.placement_policies import PlacementPolicy
from tests.examples import examples
from tests.unit.pod_scheduling.usecases.extender.extender_world import BEST_AT_ONCE, Replica, pod, world
from tests.unit.pod_scheduling.usecases.extender.scripted_card_cluster import Truth, View, card_breaches, quota_breaches
from tests.virtual_time import run_virtually

AT_ONCE_S, AT_LEISURE_S = (0, 0.01, 0.3), (1, 2, 3)


async def schedule(truth: Truth, replica: Replica, chance: random.Random, over: asyncio.Event | None = None) -> None:
    """What a kube-scheduler does, as fast as it can until all is `over`, with one pod after another."""
    extender = replica.extender
    while True:
        await asyncio.sleep(chance.choice(AT_LEISURE_S if over is not None and over.is_set() else AT_ONCE_S))
        waiting = [pod.pod for pod in truth.pods.values() if pod.node is None]
        if not waiting or not truth.nodes:
            continue
        asking = chance.choice(waiting)
        try:
            fitting = extender.filter({"pod": asking}, sorted(truth.nodes)).fitting
            scores = extender.prioritize({"pod": asking}, fitting)
        except NotSyncedError:
            continue
        assert len(scores) == len(fitting)
        assert all(0 <= score <= 10 for score in scores)
        if fitting:
            node = chance.choice(fitting)
            with suppress(BindRefusedError, NotSyncedError, TimeoutError):
                async with asyncio.timeout(chance.choice([0.1, 5, 60])):
                    await replica.bind(asking, node)


def step(truth: Truth, chance: random.Random, made: list[int]) -> None:
    """Something happens to a node or a pod."""
    name = f"n{chance.randrange(4)}"
    match chance.choice(["pod"] * 8 + ["gone"] * 4 + ["touched", "node gone", "node"]):
        case "pod":
            made.append(len(made))
            amounts = chance.choice(
                [
                    {"core": chance.randrange(1, 100), "memory": chance.randrange(5)},
                    {"core": 100 * chance.randrange(1, 3)},
                    {"gpu": chance.randrange(1, 4)},
                    {"core": 30, "init": chance.randrange(1, 100)},
                    {"core": 150},
                    {},
                ]
            )
            truth.add_pod(pod(f"p{made[-1]}", chance.choice("abc"), **amounts))
        case "gone" if truth.pods:
            truth.drop_pod(chance.choice(sorted(truth.pods)))
        case "touched" if truth.pods:
            truth.touch(chance.choice(sorted(truth.pods)))
        case "node gone" if name in truth.nodes:
            truth.drop_node(name)
        case "node" if name not in truth.nodes and name in truth.models:
            truth.put_node(truth.models[name])


async def story(seed: int) -> None:
    chance = random.Random(seed)
    truth, made = world(), list[int]()
    policy = chance.choice([PlacementPolicy.BINPACK, PlacementPolicy.SPREAD, PlacementPolicy.FGD])
    harm, lag_s = chance.choice([0.0, 0.3, 0.7]), chance.choice([0.05, 3])
    views: list[View] = []
    for _ in range(chance.randrange(1, 4)):
        views.append(View(truth, random.Random(chance.random()), harm=harm, lag_s=lag_s))
        replica = Replica(views[-1], ExtendRules(chance.choice([AssumeAt.BIND, AssumeAt.AUTO])), policy)
        schedulers = [
            asyncio.create_task(schedule(truth, replica, random.Random(seed + number))) for number in range(3)
        ]
        for _ in range(chance.randrange(5, 60)):
            step(truth, chance, made)
            await asyncio.sleep(chance.choice([0, 0.05, 0.5, 2]))
        for scheduler in schedulers:
            assert not scheduler.done(), scheduler.exception()
            scheduler.cancel()
        await asyncio.wait(schedulers)
        await replica.end()
    for view in views:
        if view.late:
            await asyncio.wait(view.late)
    assert truth.breaches == []
    for namespace in "abc":
        assert quota_breaches(truth, namespace) == []
    for name in truth.models:
        assert card_breaches(truth, name) == []


@given(st.integers(0, 2**32))
@examples(30)
def test_whatever_happens_no_quota_and_no_card_is_overdrawn(seed: int) -> None:
    run_virtually(story(seed))


@given(st.integers(0, 2**32))
@examples(12)
def test_after_all_is_over_everything_that_is_left_is_given_and_nothing_stays_assumed(seed: int) -> None:
    async def work() -> None:
        chance = random.Random(seed)
        truth, made = world(), list[int]()
        view = View(truth, random.Random(seed), harm=0.5, lag_s=1)
        replica, over = Replica(view), asyncio.Event()
        schedulers = [
            asyncio.create_task(schedule(truth, replica, random.Random(seed + number), over)) for number in range(3)
        ]
        for _ in range(40):
            step(truth, chance, made)
            await asyncio.sleep(chance.choice([0, 0.5]))
        for name in truth.models:
            if name not in truth.nodes:
                truth.put_node(truth.models[name])
        view.harm = 0.0
        over.set()
        await asyncio.sleep(400)
        assert replica.extender.assumed == 0
        fresh = Replica(View(truth, random.Random(1)))
        await asyncio.sleep(20)
        for left in list(truth.pods.values()):
            if left.node is None:
                there = sorted(truth.nodes)
                assert replica.fits(left.pod, *there) == fresh.fits(left.pod, *there) == (), left
        for scheduler in schedulers:
            scheduler.cancel()
        await asyncio.wait(schedulers)
        await replica.end()
        await fresh.end()
        assert truth.breaches == []

    run_virtually(work())


@given(st.integers(0, 2**32))
@examples(40)
def test_where_schedulers_bind_by_themselves_no_quota_is_passed_by_racing_pods(seed: int) -> None:
    async def work() -> None:
        chance = random.Random(seed)
        truth = world()
        view = View(truth, random.Random(seed), harm=chance.choice([0.0, 0.3]), lag_s=chance.choice([0.05, 3]))
        replica = Replica(view, ExtendRules(chance.choice([AssumeAt.FILTER, AssumeAt.AUTO])))
        await asyncio.sleep(8)
        for number in range(30):
            amounts = chance.choice([{"gpu": 1}, {"core": chance.randrange(1, 100)}])
            asking = pod(f"p{number}", chance.choice("ab"), **amounts)
            # Where shares go on a node is known of whole cards alone, so all of them are bound by the same.
            binds = asking.asked.shares or chance.random() < 0.5
            truth.add_pod(replace(asking, scheduler="binds" if binds else "has us bind"))

        async def schedule_one(asking: CardPod) -> None:
            await asyncio.sleep(chance.uniform(0, 10))
            for _ in range(chance.randrange(1, 3)):
                fitting = replica.fits(asking, *sorted(truth.nodes))
            if not fitting:
                return
            await asyncio.sleep(chance.uniform(0, 5))
            if asking.scheduler == "has us bind":
                with suppress(BindRefusedError):
                    await replica.bind(asking, chance.choice(fitting))
                return
            truth.pods[asking.uid].node = chance.choice(fitting)
            truth.touch(asking.uid)
            truth.breaches += quota_breaches(truth, asking.namespace)

        await asyncio.gather(*(schedule_one(listed_pod.pod) for listed_pod in list(truth.pods.values())))
        view.harm = 0
        await asyncio.sleep(400)
        for breach in truth.breaches:
            assert "has no cards" in breach  # not yet: it was bound by its scheduler just now
        for listed_pod in truth.pods.values():
            if listed_pod.node is not None and listed_pod.pod.asked.shares:
                assert listed_pod.footprint is not None
        assert view.told == []  # there was a card for each
        shared = [name for name, node in truth.models.items() if node.share_cards]
        for name in shared:
            assert card_breaches(truth, name) == []
        await replica.end()

    run_virtually(work())


@given(st.integers(0, 2**32))
@examples(25)
def test_who_is_told_the_best_alone_may_bind_by_himself_without_counting(seed: int) -> None:
    """The scheduler here looks at nothing but our answers, and binds shares through us, all else by itself."""

    async def work() -> None:
        chance = random.Random(seed)
        truth, made = world(), list[int]()
        view = View(truth, random.Random(seed), harm=chance.choice([0.0, 0.3]), lag_s=chance.choice([0.05, 3]))

        async def schedule_one(replica: Replica, asking: CardPod) -> None:
            await asyncio.sleep(chance.uniform(0, 10))
            while (there := truth.pods.get(asking.uid)) is not None and there.node is None:
                try:
                    fitting = replica.chosen(asking, *chance.sample(sorted(truth.nodes), len(truth.nodes)))
                except NotSyncedError:
                    fitting = ()
                await asyncio.sleep(chance.choice([0, 4, 4, 100, 600]) * chance.random())
                if fitting and asking.asked.shares:
                    with suppress(BindRefusedError, NotSyncedError, PodChangedError):
                        await replica.bind(asking, *fitting)
                elif fitting and chance.random() < 0.8:  # else it goes wrong, and is tried again
                    with suppress(PodChangedError):
                        truth.bind(asking.uid, fitting[0], {})
                elif asking.uid in truth.pods and chance.random() < 0.8:  # else as before, of which nothing is written
                    truth.put_off(asking.uid)
                await asyncio.sleep(chance.choice([1, 20, 60]))

        for _ in range(chance.randrange(1, 3)):
            replica = Replica(view, BEST_AT_ONCE)
            waiting = []
            for _ in range(40):
                known = set(truth.pods)
                step(truth, chance, made)
                new = [truth.pods[uid].pod for uid in truth.pods.keys() - known]
                waiting += [asyncio.create_task(schedule_one(replica, pod)) for pod in new]
                await asyncio.sleep(chance.choice([0, 0.5, 2]))
            await asyncio.sleep(chance.choice([30, 1000]))
            for task in waiting:
                assert not task.done() or task.cancelled() or task.exception() is None, task.exception()
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            if chance.random() < 0.5:
                view.harm = 0
                await asyncio.sleep(700)
                assert replica.extender.assumed == 0  # who was never bound counts no more
            await replica.end()
        assert truth.breaches == []

    run_virtually(work())

"""The extender: whatever happens in whatever order, however binds end, and whenever it is killed and begins anew."""

import asyncio
import json
import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pod_scheduling.domain.extender.asked_cards import CardResources, asked_cards
from pod_scheduling.domain.extender.board import ExtenderBoard
from pod_scheduling.domain.extender.card_footprints import Taken
from pod_scheduling.domain.extender.cards_in_use import CardNode, CardPod, CardsInUse
from pod_scheduling.domain.extender.model_quotas import read_quotas
from pod_scheduling.domain.extender.model_usage import ModelUsage, model_of
from pod_scheduling.domain.placement.rankings import ranking_of
from pod_scheduling.ports.extender import AssumeAt, Binding, Candidates, NotSyncedError
from pod_scheduling.ports.pod_binding import BindRefusedError, PodChangedError, PodRef
from pod_scheduling.usecases.extender.rules import ExtendRules
from pod_scheduling.usecases.extender.scheduler_extender import SchedulerExtender
from reservation_core.domain.cards.placement_policies import PlacementPolicy
from tests.clocks import SettableClock
from tests.examples import examples
from tests.unit.pod_scheduling.usecases.extender.scripted_card_cluster import Truth, View, card_breaches, quota_breaches
from tests.virtual_time import run_virtually

QUOTAS = {"a": {"quota": {"h100": 3, "Tesla-T4": 2}}, "b": {"quota": {"H100": 2}, "pool": ["public"]}}
CORE, MEMORY, WHOLE = "tencent.com/vcuda-core", "tencent.com/vcuda-memory", "nvidia.com/gpu"


def share_node(name: str, cards: int = 2, memory: int = 8, label: str = "NVIDIA-H100-PCIe", pool: str = "") -> CardNode:
    return CardNode(name, model_of(label), pool, share_cards=cards, card_memory=memory, cpu_milli=64_000)


def plugin_node(name: str, cards: int = 4, label: str = "Tesla-T4", pool: str = "") -> CardNode:
    return CardNode(name, model_of(label), pool, plugin_cards=cards, cpu_milli=64_000)


def pod(uid: str, namespace: str = "a", **amounts: int) -> CardPod:
    """One container; `core`, `memory`, `gpu`, and `init` for the share of an init container."""
    names = {"core": CORE, "memory": MEMORY, "gpu": WHOLE}
    limits = {names[key]: str(amount) for key, amount in amounts.items() if key in names}
    inits = [{"name": "init", "resources": {"limits": {CORE: str(amounts["init"])}}}] if "init" in amounts else []
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}], "initContainers": inits}
    return CardPod(uid, namespace, uid, asked_cards(spec, CardResources()), 1000, 100)


@dataclass
class Replica:
    """An extender at work."""

    view: View
    rules: ExtendRules = field(default_factory=lambda: ExtendRules(AssumeAt.BIND))
    policy: PlacementPolicy = PlacementPolicy.BINPACK

    def __post_init__(self) -> None:
        board = ExtenderBoard(CardsInUse(ModelUsage()), ranking_of(self.policy))
        self.extender = SchedulerExtender(self.view, board, self.rules, SettableClock())
        self.task = asyncio.create_task(self.extender.run())

    async def end(self) -> None:
        """As when it is killed: what it has asked for goes on."""
        assert not self.task.done(), self.task.exception()
        self.view.truth.watchers = [watcher for watcher in self.view.truth.watchers if watcher is not self.view]
        self.task.cancel()
        await asyncio.wait([self.task])

    def fits(self, asking: CardPod, *nodes: str) -> tuple[str, ...]:
        return self.extender.filter({"pod": asking}, nodes).fitting

    def chosen(self, asking: CardPod, *nodes: str) -> tuple[str, ...]:
        return self.extender.choose({"pod": asking}, nodes).fitting

    async def bind(self, asking: CardPod, node: str) -> None:
        await self.extender.bind(Binding(asking.namespace, asking.name, asking.uid, node))


async def schedule(truth: Truth, replica: Replica, chance: random.Random) -> None:
    """What a kube-scheduler does, as fast as it can, with one pod after another."""
    extender = replica.extender
    while True:
        await asyncio.sleep(chance.choice([0, 0.01, 0.3]))
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


def world() -> Truth:
    text = json.dumps(QUOTAS)
    truth = Truth(read_quotas(text), text)
    for node in (
        share_node("n0"), share_node("n1", pool="public"),
        plugin_node("n2"), plugin_node("n3", label="NVIDIA-H100-PCIe", pool="public"),
    ):  # fmt: skip
        truth.put_node(node)
    return truth


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
        replica = Replica(view)
        schedulers = [
            asyncio.create_task(schedule(truth, replica, random.Random(seed + number))) for number in range(3)
        ]
        for _ in range(40):
            step(truth, chance, made)
            await asyncio.sleep(chance.choice([0, 0.5]))
        for name in truth.models:
            if name not in truth.nodes:
                truth.put_node(truth.models[name])
        view.harm = 0.0
        await asyncio.sleep(400)
        assert replica.extender.assumed == 0
        fresh = Replica(View(truth, random.Random(1)))
        await asyncio.sleep(20)
        for pod in list(truth.pods.values()):
            if pod.node is None:
                there = sorted(truth.nodes)
                assert replica.fits(pod.pod, *there) == fresh.fits(pod.pod, *there) == (), pod
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


BEST_AT_ONCE = ExtendRules(AssumeAt.FILTER, Candidates.BEST)


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


def test_the_node_that_was_told_alone_counts_as_the_pods() -> None:
    async def work() -> None:
        truth = world()
        replica = Replica(View(truth, random.Random(1), lag_s=0), BEST_AT_ONCE)
        await asyncio.sleep(10)
        one, other = pod("one", "c", gpu=3), pod("other", "c", gpu=3)
        for listed_pod in (one, other):
            truth.add_pod(listed_pod)
        await asyncio.sleep(1)
        (first,) = replica.chosen(one, "n2", "n3")
        (second,) = replica.chosen(other, "n2", "n3")
        assert {first, second} == {"n2", "n3"}
        assert replica.chosen(one, first) == (first,)  # asked about once more it is not in its own way
        assert replica.chosen(pod("third", "c", gpu=3), "n2", "n3") == ()
        assert replica.extender.assumed == 2
        truth.bind("one", first, {})
        truth.put_off("other")
        await asyncio.sleep(40)
        assert replica.extender.assumed == 0
        replica.chosen(one, "n2", "n3")  # a question that is late: where it is, is known
        assert replica.extender.assumed == 0
        assert replica.chosen(pod("third", "c", gpu=3), "n2", "n3") == (second,)
        await replica.end()

    run_virtually(work())


def test_a_share_that_was_told_its_node_gets_its_cards_when_it_is_bound() -> None:
    async def work() -> None:
        truth = world()
        replica = Replica(View(truth, random.Random(1), lag_s=0), BEST_AT_ONCE)
        await asyncio.sleep(10)
        one = pod("one", "c", core=60)
        truth.add_pod(one)
        await asyncio.sleep(1)
        assert replica.chosen(one, "n0", "n1") == ("n0",)
        await replica.bind(one, "n1")  # its scheduler has thought better of it
        assert (truth.pods["one"].node, truth.pods["one"].footprint) == ("n1", (Taken(0, 600),))
        await asyncio.sleep(1)
        assert replica.extender.assumed == 0
        await replica.end()

    run_virtually(work())


def test_where_a_bind_is_not_known_to_be_over_another_node_does_not_free_its_cards() -> None:
    async def work() -> None:
        truth = world()
        view = View(truth, random.Random(1), lag_s=0)
        replica = Replica(view, BEST_AT_ONCE)
        await asyncio.sleep(10)
        one = pod("one", "c", core=200)
        truth.add_pod(one)
        await asyncio.sleep(1)
        view.harm = 1.0
        with pytest.raises(BindRefusedError, match="is not known"):
            await replica.bind(one, "n0")
        assert replica.chosen(one, "n1") == ("n1",)
        assert replica.chosen(pod("other", "c", core=200), "n0") == ()
        await replica.end()

    run_virtually(work())


def test_who_has_wishes_is_told_all_and_where_we_bind_the_best_leaves_nothing_behind() -> None:
    async def work() -> None:
        wishing = replace(pod("wishing", "c", gpu=1), has_preferences=True)
        for rules in (BEST_AT_ONCE, ExtendRules(AssumeAt.BIND, Candidates.BEST)):
            replica = Replica(View(world(), random.Random(1)), rules)
            await asyncio.sleep(10)
            assert replica.chosen(wishing, "n2", "n3") == ("n2", "n3")
            assert replica.chosen(pod("none", "c"), "n2", "n3") == ("n2", "n3")
            assert replica.extender.assumed == 0
            assert len(replica.chosen(pod("other", "c", gpu=1), "n2", "n3")) == 1
            assert replica.extender.assumed == (rules is BEST_AT_ONCE)
            await replica.end()

    run_virtually(work())


def test_a_claim_of_a_pod_that_was_asked_for_again_is_its_own() -> None:
    async def work() -> None:
        truth = world()
        replica = Replica(View(truth, random.Random(1)), ExtendRules(AssumeAt.FILTER, claim_s=30))
        await asyncio.sleep(10)
        one, other = pod("one", gpu=2), pod("other", gpu=2)
        assert replica.fits(one, "n2") == replica.fits(one, "n2") == ("n2",)
        assert replica.fits(other, "n2") == ()
        await asyncio.sleep(29)
        assert replica.fits(other, "n2") == ()
        await asyncio.sleep(3)
        assert replica.fits(other, "n2") == ("n2",)
        await replica.end()

    run_virtually(work())


def test_a_claim_is_not_over_while_its_pod_is_on_a_node_and_nobody_has_told() -> None:
    async def work() -> None:
        truth = world()
        view = View(truth, random.Random(1), lag_s=0)
        replica = Replica(view, ExtendRules(AssumeAt.FILTER, claim_s=30))
        await asyncio.sleep(10)
        truth.watchers.clear()  # the watch is silent from now on
        bound, waits, gone = pod("bound", gpu=1), pod("waits", gpu=1), pod("gone", gpu=1)
        for listed_pod in (bound, waits):
            truth.add_pod(listed_pod)
        assert replica.fits(bound, "n2") == replica.fits(waits, "n2") == ("n2",)
        assert replica.fits(gone, "n2") == ()
        truth.pods["bound"].node = "n2"
        await asyncio.sleep(120)
        assert replica.extender.claimed == 1
        assert replica.fits(gone, "n2") == ("n2",)
        assert replica.fits(waits, "n2") == ()
        await asyncio.sleep(33)
        assert replica.fits(waits, "n2") == ("n2",)
        view.harm = 1.0  # nobody can say where it is
        await asyncio.sleep(120)
        assert replica.fits(gone, "n2") == ()
        await replica.end()

    run_virtually(work())


def test_what_keeps_it_from_reading_the_cluster_is_told() -> None:
    async def work() -> None:
        view = View(world(), random.Random(1))
        replica = Replica(view, ExtendRules(AssumeAt.BIND))
        assert replica.extender.silence == "gpu-admission is still reading nodes and pods; ask again."
        view.problem = "403 Forbidden: configmaps is forbidden."
        with pytest.raises(NotSyncedError, match="can't read the cluster: 403 Forbidden: configmaps is forbidden"):
            replica.fits(pod("next", gpu=1), "n2")
        await asyncio.sleep(1)
        assert replica.extender.silence is None  # what was read is good while a watch is interrupted
        await replica.end()

    run_virtually(work())


@pytest.mark.parametrize("leads", [False, True])
def test_nothing_passes_before_the_pods_that_another_let_through_are_seen(leads: bool) -> None:
    async def work() -> None:
        truth = world()
        replica = Replica(View(truth, random.Random(1)), ExtendRules(AssumeAt.FILTER))
        if leads:
            await asyncio.sleep(30)
            replica.extender.lead()
        truth.add_pod(pod("before", gpu=2))
        await asyncio.sleep(1)
        with pytest.raises(NotSyncedError, match="may still be bound"):
            replica.fits(pod("next", gpu=1), "n2")
        await asyncio.sleep(2)
        truth.pods["before"].node = "n2"  # the one before has let it through
        truth.touch("before")
        await asyncio.sleep(3)
        assert replica.fits(pod("next", gpu=1), "n2") == ()
        await replica.end()

    run_virtually(work())


def test_of_pods_that_race_node_by_node_no_more_pass_than_there_is_quota() -> None:
    async def work() -> None:
        truth = world()
        replica = Replica(View(truth, random.Random(1)), ExtendRules(AssumeAt.FILTER))
        await asyncio.sleep(10)
        passed = {
            name: [number for number in range(20) if replica.fits(pod(f"{name}-{number}", gpu=1), name)]
            for name in ("n2", "n3")
        }
        assert passed == {"n2": [0, 1], "n3": [0, 1, 2]}
        for number in range(20):  # once more, the other node last: what passed before goes on counting
            replica.fits(pod(f"n3-{number}", gpu=1), "n2")
        assert replica.fits(pod("late", gpu=1), "n3") == ()
        await replica.end()

    run_virtually(work())


def test_asking_leaves_nothing_behind_where_we_bind() -> None:
    async def work() -> None:
        replica = Replica(View(world(), random.Random(1)))
        await asyncio.sleep(2)
        for number in range(5):
            assert replica.fits(pod(f"p{number}", gpu=2), "n2") == ("n2",)
        assert replica.extender.claimed == replica.extender.assumed == 0
        await replica.end()

    run_virtually(work())


def test_nothing_is_bound_before_the_binds_of_a_killed_process_are_known() -> None:
    async def work() -> None:
        truth = world()
        view = View(truth, random.Random(1))
        first = Replica(view)
        one, other = pod("one", gpu=2), pod("other", gpu=2)
        truth.add_pod(one)
        truth.add_pod(other)
        await asyncio.sleep(10)
        view._late(_ref(one), "n2", {})  # asked for, and not carried out when it is killed
        await first.end()
        second = Replica(View(truth, random.Random(1), lag_s=3))
        await asyncio.sleep(1)
        with pytest.raises(BindRefusedError, match="2 of 2 Tesla-T4 used"):
            await second.bind(other, "n2")
        assert truth.breaches == []
        await second.end()

    run_virtually(work())


def test_who_is_nowhere_to_be_seen_yet_is_looked_up() -> None:
    async def work() -> None:
        truth = world()
        view = View(truth, random.Random(1), lag_s=1000)
        replica = Replica(view)
        await asyncio.sleep(20)
        one = pod("one", gpu=1)
        truth.add_pod(one)
        await replica.bind(one, "n2")
        assert truth.pods["one"].node == "n2"
        with pytest.raises(BindRefusedError, match="no pod a/two of the uid two"):
            await replica.bind(pod("two", gpu=1), "n2")
        await replica.end()

    run_virtually(work())


def _ref(asking: CardPod) -> PodRef:
    return PodRef(asking.namespace, asking.name, asking.uid)


def test_who_asks_on_waits_while_many_binds_are_under_way_but_not_for_ever() -> None:
    async def work() -> None:
        truth = world()
        view = View(truth, random.Random(1))
        replica = Replica(view, ExtendRules(AssumeAt.BIND, binds_at_once=2, pause_s=1))
        await asyncio.sleep(10)
        answers = asyncio.Event()

        async def bind(ref: PodRef, node: str, marks: Mapping[str, str]) -> None:
            await answers.wait()
            truth.bind(ref.uid, node, marks)

        view.bind = bind  # type: ignore[method-assign]
        loop = asyncio.get_running_loop()

        async def waited() -> float:
            begun = loop.time()
            await replica.extender.turn()
            return loop.time() - begun

        binds = []
        for number in range(2):
            assert await waited() == 0
            truth.add_pod(asking := pod(f"p{number}", "c", core=10))
            await asyncio.sleep(0.5)
            binds.append(asyncio.create_task(replica.bind(asking, "n0")))
            await asyncio.sleep(0.1)
        assert await waited() == pytest.approx(1)
        asyncio.get_running_loop().call_later(0.25, answers.set)
        assert await waited() == pytest.approx(0.25, abs=0.05)
        await asyncio.gather(*binds)
        assert await waited() == 0
        await replica.end()

    run_virtually(work())

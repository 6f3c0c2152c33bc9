"""Whatever gangs a Volcano tries, nothing is overdrawn."""

import asyncio
import random
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from pod_scheduling.domain.extender.cards_in_use import CardPod
from tests.examples import examples
from tests.unit.pod_scheduling.usecases.extender.allocating import RULES, allocate, take_back
from tests.unit.pod_scheduling.usecases.extender.extender_world import Replica, pod, world
from tests.unit.pod_scheduling.usecases.extender.scripted_card_cluster import Truth, View, card_breaches, quota_breaches
from tests.virtual_time import run_virtually


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

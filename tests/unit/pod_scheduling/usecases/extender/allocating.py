"""What a scheduler that binds by itself tells of its allocations."""

import asyncio
import random
from collections.abc import Awaitable, Callable

from pod_scheduling.domain.extender.cards_in_use import CardPod
from pod_scheduling.ports.extender import AssumeAt
from pod_scheduling.usecases.extender.rules import ExtendRules
from tests.unit.pod_scheduling.usecases.extender.extender_world import Replica, pod, world
from tests.unit.pod_scheduling.usecases.extender.scripted_card_cluster import Truth, View
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

"""A bind of ours: what is known when it is begun, for how long it is waited for, and what is left of one given up."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import pytest

from pod_scheduling.domain.extender.board import ExtenderBoard
from pod_scheduling.domain.extender.cards_in_use import CardsInUse
from pod_scheduling.domain.extender.model_usage import ModelUsage
from pod_scheduling.domain.placement.rankings import ranking_of
from pod_scheduling.ports.extender import AssumeAt, Binding, NotSyncedError
from pod_scheduling.ports.pod_binding import BindRefusedError, PodRef
from pod_scheduling.usecases.extender.rules import ExtendRules
from pod_scheduling.usecases.extender.scheduler_extender import SchedulerExtender
from reservation_core.domain.cards.placement_policies import PlacementPolicy
from tests.clocks import SettableClock
from tests.unit.pod_scheduling.usecases.extender.extender_world import pod, world
from tests.unit.pod_scheduling.usecases.extender.scripted_card_cluster import View
from tests.virtual_time import run_virtually

RULES = ExtendRules(AssumeAt.BIND)
BINDING = Binding("a", "one", "one", "n2")


class Silent(View):
    """Never answers a bind."""

    async def bind(self, pod: PodRef, node: str, marks: Mapping[str, str]) -> None:
        self.bind_calls += 1
        await asyncio.Event().wait()


class Leader:
    """A replica that surely leads for `for_s` seconds more."""

    def __init__(self) -> None:
        truth = world()
        truth.add_pod(pod("one", gpu=1))
        self.for_s = 60.0
        self.view = Silent(truth, random.Random(1), lag_s=0)
        board = ExtenderBoard(CardsInUse(ModelUsage()), ranking_of(PlacementPolicy.BINPACK))
        self.extender = SchedulerExtender(self.view, board, RULES, SettableClock(), lambda: self.for_s)


def told(story: Callable[[Leader], Awaitable[None]]) -> None:
    async def work() -> None:
        leader = Leader()
        running = asyncio.create_task(leader.extender.run())
        await asyncio.sleep(10)
        await story(leader)
        running.cancel()
        await asyncio.wait([running])

    run_virtually(work())


def test_who_leads_no_more_once_it_has_looked_the_pod_up_binds_nothing() -> None:
    async def story(leader: Leader) -> None:
        leader.view.truth.watchers.clear()
        leader.view.truth.add_pod(pod("late", gpu=1))
        binding = asyncio.create_task(leader.extender.bind(Binding("a", "late", "late", "n2")))
        await asyncio.sleep(0)
        leader.for_s = 0
        with pytest.raises(NotSyncedError, match="Another replica leads"):
            await binding
        assert leader.view.bind_calls == 0

    told(story)


@pytest.mark.parametrize(("leads_for_s", "waits_s"), [(60.0, RULES.bind_s), (1.0, 1.0)])
def test_a_bind_is_waited_for_no_longer_than_it_leads(leads_for_s: float, waits_s: float) -> None:
    async def story(leader: Leader) -> None:
        leader.for_s = leads_for_s
        begun_s = asyncio.get_running_loop().time()
        with pytest.raises(BindRefusedError, match="no answer in time"):
            await leader.extender.bind(BINDING)
        assert asyncio.get_running_loop().time() - begun_s == pytest.approx(waits_s, abs=0.5)

    told(story)


def test_what_was_asked_for_by_who_has_hung_up_may_still_come() -> None:
    async def story(leader: Leader) -> None:
        binding = asyncio.create_task(leader.extender.bind(BINDING))
        await asyncio.sleep(1)
        binding.cancel()
        with suppress(asyncio.CancelledError):
            await binding
        leader.extender.end()
        await asyncio.sleep(RULES.unclear_s - 1)
        assert not leader.extender.settled
        await asyncio.sleep(2)
        assert leader.extender.settled

    told(story)

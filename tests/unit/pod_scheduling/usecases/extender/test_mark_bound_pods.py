"""Cards are written on pods that were bound beside us: on each as soon as can be, whatever becomes of others."""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from pod_scheduling.domain.extender.card_marks import CARDS
from pod_scheduling.ports.extender import AssumeAt
from pod_scheduling.ports.pod_binding import PodRef
from pod_scheduling.usecases.extender.rules import ExtendRules
from reservation_core.ports.cluster import ClusterUnavailableError
from tests.unit.pod_scheduling.usecases.extender.extender_world import Replica, pod, share_node, world
from tests.unit.pod_scheduling.usecases.extender.scripted_card_cluster import Truth, View
from tests.virtual_time import run_virtually


@dataclass
class RefusingView(View):
    """Nothing is ever written on some pods."""

    refused: set[str] = field(default_factory=set)

    async def mark(self, pod: PodRef, version: str | None, marks: Mapping[str, str]) -> None:
        if pod.uid in self.refused:
            raise ClusterUnavailableError("403 Forbidden")
        await super().mark(pod, version, marks)


@dataclass
class HangingView(View):
    """Nothing comes of writing on pods."""

    async def mark(self, pod: PodRef, version: str | None, marks: Mapping[str, str]) -> None:
        await asyncio.Event().wait()


AT_FILTER = ExtendRules(AssumeAt.FILTER)


def bound(truth: Truth, uid: str, node: str) -> None:
    truth.add_pod(pod(uid, "c", core=10))
    truth.pods[uid].node = node
    truth.touch(uid)


def test_pods_on_which_nothing_can_be_written_hold_nobody_up() -> None:
    async def work() -> None:
        truth = world()
        view = RefusingView(truth, random.Random(1), lag_s=0, refused={f"stuck-{number}" for number in range(8)})
        replica = Replica(view, AT_FILTER)
        await asyncio.sleep(10)
        for uid in sorted(view.refused):
            bound(truth, uid, "n0")
        await asyncio.sleep(5)
        bound(truth, "next", "n1")
        await asyncio.sleep(2)
        assert truth.pods["next"].footprint is not None
        view.refused.clear()
        await asyncio.sleep(5)
        assert all(listed_pod.footprint is not None for listed_pod in truth.pods.values())
        await replica.end()

    run_virtually(work())


def test_a_pod_that_is_seen_before_its_node_gets_its_cards_when_that_is_there() -> None:
    async def work() -> None:
        truth = world()
        view = View(truth, random.Random(1), lag_s=0)
        replica = Replica(view, AT_FILTER)
        await asyncio.sleep(10)
        new = share_node("new")
        truth.models["new"] = new
        bound(truth, "early", "new")
        bound(truth, "gone", "new")
        await asyncio.sleep(10)
        truth.drop_pod("gone")
        await asyncio.sleep(5)
        assert replica.extender.marker._queued == {"early"}
        truth.put_node(new)
        await asyncio.sleep(5)
        assert truth.pods["early"].footprint is not None
        assert view.told == []
        await replica.end()

    run_virtually(work())


def test_who_is_seen_has_its_cards_before_they_are_written() -> None:
    """In the order of their coming the three leave no card for another half; in another order they would."""

    async def work() -> None:
        truth = world()
        names = [f"{name}-{milli}" for name, milli in (("c", 40), ("a", 50), ("b", 60))]
        view = HangingView(truth, random.Random(1), lag_s=0)
        replica = Replica(view, AT_FILTER)
        await asyncio.sleep(10)
        bound(truth, "first", "n1")  # at which the writing hangs
        for name in names:
            truth.add_pod(pod(name, "c", core=int(name[2:])))
            truth.pods[name].node = "n0"
            truth.touch(name)
        await asyncio.sleep(0.5)
        assert replica.fits(pod("half", "c", core=50), "n0") == ()
        await replica.end()

    run_virtually(work())


def test_before_all_was_seen_nobody_is_given_what_others_have() -> None:
    async def work() -> None:
        truth = world()
        replica = Replica(RefusingView(truth, random.Random(1), lag_s=0, refused={"unmarked"}), AT_FILTER)
        await asyncio.sleep(10)
        truth.watchers.clear()  # what follows is seen by the next list, in this order
        for name in ("unmarked", "marked"):
            truth.add_pod(pod(name, "c", core=60))
            truth.pods[name].node = "n0"
        truth.pods["marked"].marks = {CARDS: "0=600"}
        replica.extender.lead()
        await eventually_synced(replica)
        assert replica.fits(pod("next", "c", core=60), "n0") == ()
        await replica.end()

    run_virtually(work())


async def eventually_synced(replica: Replica) -> None:
    while not replica.extender.synced:
        await asyncio.sleep(0.01)

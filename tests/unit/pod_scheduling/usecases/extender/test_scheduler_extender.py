"""What the extender tells each pod, what it claims for it, and what it waits for."""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from pod_scheduling.domain.extender.card_footprints import Taken
from pod_scheduling.domain.extender.cards_in_use import CardPod
from pod_scheduling.ports.extender import AssumeAt, Candidates, NotSyncedError
from pod_scheduling.ports.pod_binding import BindRefusedError, PodRef
from pod_scheduling.usecases.extender.rules import ExtendRules
from tests.unit.pod_scheduling.usecases.extender.extender_world import BEST_AT_ONCE, Replica, pod, world
from tests.unit.pod_scheduling.usecases.extender.scripted_card_cluster import View
from tests.virtual_time import run_virtually


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

"""From when on pods count whose scheduler has not said who binds them; and that a wrong setting is told."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from pod_scheduling.domain.extender.cards_in_use import CardPod
from pod_scheduling.ports.extender import AssumeAt, NotSyncedError
from pod_scheduling.ports.pod_binding import BindRefusedError
from pod_scheduling.usecases.extender.rules import ExtendRules
from reservation_core.ports.cluster import ClusterUnavailableError
from tests.unit.pod_scheduling.usecases.extender.extender_world import Replica, pod, world
from tests.unit.pod_scheduling.usecases.extender.scripted_card_cluster import Truth, View
from tests.virtual_time import run_virtually

Lab = Callable[[Truth, Replica], Awaitable[None]]


def gpu_pod(uid: str, scheduler: str, gpus: int = 1) -> CardPod:
    return replace(pod(uid, gpu=gpus), scheduler=scheduler)


def in_a_lab(work: Lab, assume_at: AssumeAt) -> None:
    """Namespace a may use two of the four cards of n2."""

    async def run() -> None:
        truth = world()
        replica = Replica(View(truth, random.Random(1), lag_s=0), ExtendRules(assume_at, claim_s=30))
        await asyncio.sleep(10)
        await work(truth, replica)
        await replica.end()

    run_virtually(run())


async def bound_by_itself(truth: Truth, uid: str) -> None:
    truth.pods[uid].node = "n2"
    truth.touch(uid)
    await asyncio.sleep(1)


def test_of_an_unknown_scheduler_pods_count_from_the_question_on() -> None:
    async def work(truth: Truth, replica: Replica) -> None:
        del truth
        assert replica.fits(gpu_pod("one", "x", 2), "n2") == ("n2",)
        assert replica.fits(gpu_pod("other", "x"), "n2") == ()

    in_a_lab(work, AssumeAt.AUTO)


def test_who_has_us_bind_leaves_nothing_behind_by_asking_and_others_still_do() -> None:
    async def work(truth: Truth, replica: Replica) -> None:
        first = gpu_pod("first", "ours")
        truth.add_pod(first)
        await asyncio.sleep(1)
        assert replica.fits(first, "n2") == ("n2",)
        await replica.bind(first, "n2")
        assert truth.pods["first"].node == "n2"
        for number in range(3):
            assert replica.fits(gpu_pod(f"next-{number}", "ours"), "n2") == ("n2",)
        shares = replace(pod("shares", core=100), scheduler="ours")  # these it may bind by itself
        assert replica.fits(shares, "n1", "n0") != ()
        assert replica.extender.claimed == 1
        assert replica.fits(gpu_pod("another", "own"), "n2") == ("n2",)
        assert replica.fits(gpu_pod("one more", "own"), "n2") == ()

    in_a_lab(work, AssumeAt.AUTO)


def test_who_had_us_bind_and_then_binds_by_itself_is_found_out_for_good() -> None:
    async def work(truth: Truth, replica: Replica) -> None:
        for uid in ("first", "second"):
            truth.add_pod(gpu_pod(uid, "turns"))
        await asyncio.sleep(1)
        replica.fits(gpu_pod("first", "turns"), "n2")
        await replica.bind(gpu_pod("first", "turns"), "n2")
        replica.fits(gpu_pod("second", "turns"), "n2")
        with capture_logs() as logged:
            await bound_by_itself(truth, "second")
        assert [record["log_level"] for record in logged if record.get("who") == "turns (whole GPUs)"] == ["warning"]
        assert replica.extender.who_binds.beside_us == 1
        truth.drop_pod("first")
        await asyncio.sleep(1)
        assert replica.fits(gpu_pod("third", "turns"), "n2") == ("n2",)
        assert replica.fits(gpu_pod("fourth", "turns"), "n2") == ()
        await replica.bind(gpu_pod("second", "turns"), "n2")  # nothing is learnt by that any more
        assert replica.fits(gpu_pod("fourth", "turns"), "n2") == ()
        assert replica.extender.who_binds.problem is None

    in_a_lab(work, AssumeAt.AUTO)


def test_that_pods_are_bound_beside_a_setting_of_bind_is_told() -> None:
    async def work(truth: Truth, replica: Replica) -> None:
        for uid in ("ours", "theirs", "never asked about"):
            truth.add_pod(gpu_pod(uid, "kube-scheduler"))
        await asyncio.sleep(1)
        replica.fits(gpu_pod("ours", "kube-scheduler"), "n2")
        await replica.bind(gpu_pod("ours", "kube-scheduler"), "n2")
        await bound_by_itself(truth, "never asked about")
        assert (replica.extender.who_binds.problem, replica.extender.who_binds.beside_us) == (None, 0)
        replica.chosen(gpu_pod("theirs", "kube-scheduler"), "n3")
        await bound_by_itself(truth, "theirs")
        problem = replica.extender.who_binds.problem
        assert problem is not None
        assert "kube-scheduler (whole GPUs)" in problem
        assert "--assume-at=auto" in problem
        assert replica.extender.who_binds.beside_us == 1

    in_a_lab(work, AssumeAt.BIND)


@pytest.mark.parametrize("assume_at", [AssumeAt.AUTO, AssumeAt.FILTER])
def test_nothing_is_wrong_where_what_is_bound_beside_us_counted_before(assume_at: AssumeAt) -> None:
    async def work(truth: Truth, replica: Replica) -> None:
        truth.add_pod(gpu_pod("one", "x"))
        await asyncio.sleep(1)
        replica.fits(gpu_pod("one", "x"), "n2")
        await bound_by_itself(truth, "one")
        assert (replica.extender.who_binds.problem, replica.extender.who_binds.beside_us) == (None, 0)

    in_a_lab(work, assume_at)


@pytest.mark.parametrize("assume_at", [AssumeAt.AUTO, AssumeAt.BIND])
def test_a_pod_that_was_not_seen_yet_is_bound_by_us_all_the_same(assume_at: AssumeAt) -> None:
    async def work(truth: Truth, replica: Replica) -> None:
        truth.add_pod(gpu_pod("first", "ours"))
        replica.fits(gpu_pod("first", "ours"), "n2")
        assert replica.extender.waiting == 0
        await replica.bind(gpu_pod("first", "ours"), "n2")
        await asyncio.sleep(1)
        assert (replica.extender.who_binds.problem, replica.extender.who_binds.beside_us) == (None, 0)
        for number in range(3):  # nothing counts at the filter: it is known that we bind such pods
            assert replica.fits(gpu_pod(f"next-{number}", "ours"), "n2") == ("n2",)

    in_a_lab(work, assume_at)


@pytest.mark.parametrize("ask", [Replica.fits, Replica.chosen])
def test_a_pod_that_is_asked_about_while_its_bind_is_unclear_is_bound_by_us(
    ask: Callable[..., tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(truth: Truth, replica: Replica) -> None:
        async def silence(*_: object) -> None:
            raise ClusterUnavailableError("no answer")

        asking = gpu_pod("first", "ours")
        truth.add_pod(asking)
        await asyncio.sleep(1)
        ask(replica, asking, "n2")
        monkeypatch.setattr(replica.view, "bind", silence)
        with pytest.raises(BindRefusedError, match="is not known"):
            await replica.bind(asking, "n2")
        ask(replica, asking, "n2")
        await bound_by_itself(truth, "first")  # what we asked for is carried out late
        ask(replica, asking, "n2")  # the scheduler hears of it later than we do
        truth.touch("first")
        await asyncio.sleep(1)
        assert (replica.extender.who_binds.problem, replica.extender.who_binds.beside_us) == (None, 0)

    in_a_lab(work, AssumeAt.BIND)


def test_a_pod_that_is_asked_about_while_its_bind_waits_is_bound_by_us() -> None:
    async def work(truth: Truth, replica: Replica) -> None:
        asking = gpu_pod("first", "ours")
        truth.add_pod(asking)
        binding = asyncio.create_task(replica.bind(asking, "n2"))
        await asyncio.sleep(0)  # it is being looked up
        replica.fits(asking, "n2")
        await binding
        await asyncio.sleep(1)
        assert truth.pods["first"].node == "n2"
        assert (replica.extender.who_binds.problem, replica.extender.who_binds.beside_us) == (None, 0)

    in_a_lab(work, AssumeAt.BIND)


def test_a_pod_whose_bind_was_asked_of_us_in_vain_may_be_on_its_node_already() -> None:
    async def work(truth: Truth, replica: Replica) -> None:
        asking = gpu_pod("first", "ours")
        truth.add_pod(asking)
        replica.fits(asking, "n2")
        truth.pods["first"].node = "n2"  # by a process before this one
        await replica.bind(asking, "n2")
        truth.touch("first")
        await asyncio.sleep(1)
        assert (replica.extender.who_binds.problem, replica.extender.who_binds.beside_us) == (None, 0)

    in_a_lab(work, AssumeAt.BIND)


def test_a_pod_whose_bind_another_replica_is_asked_for_instead_is_not_bound_by_its_scheduler() -> None:
    async def work(truth: Truth, replica: Replica) -> None:
        asking = gpu_pod("first", "ours")
        truth.add_pod(asking)
        await asyncio.sleep(1)
        replica.fits(asking, "n2")
        replica.extender.lead()  # until all was read anew nothing is answered
        with pytest.raises(NotSyncedError):
            await replica.bind(asking, "n2")
        await bound_by_itself(truth, "first")
        assert (replica.extender.who_binds.problem, replica.extender.who_binds.beside_us) == (None, 0)

    in_a_lab(work, AssumeAt.BIND)

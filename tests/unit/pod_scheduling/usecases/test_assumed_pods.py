"""Pods that count before they are seen on their nodes, whatever becomes of the call that binds them."""

import asyncio
from collections.abc import Mapping

import pytest

from pod_scheduling.ports.pod_binding import BindRefusedError, PodBindings, PodRef
from pod_scheduling.usecases.assumed_pods import AssumedPod, AssumedPods, BindUnansweredError
from reservation_core.ports.cluster import ClusterUnavailableError
from tests.virtual_time import run_virtually

POD = PodRef("team", "p-0", "uid-0")


class Bindings:
    """Answers every bind with an error."""

    def __init__(self, problem: Exception) -> None:
        self._problem = problem

    async def bind(self, pod: PodRef, node: str, marks: Mapping[str, str] = {}) -> None:
        raise self._problem

    async def node_of(self, pod: PodRef) -> str | None:
        return None


def assumed_pods(bindings: PodBindings, unclear_s: float = 60, assumed_s: float = 60) -> AssumedPods[AssumedPod]:
    return AssumedPods(bindings, unclear_s, assumed_s, free_gpus=lambda _: None)


async def test_after_an_error_that_nobody_expected_a_bind_may_still_be_carried_out() -> None:
    kept = assumed_pods(Bindings(ValueError("what a library raises")))
    assumed = AssumedPod(POD, "w0", 0)
    kept.add(assumed)
    with pytest.raises(BindUnansweredError, match="not known: what a library raises"):
        await kept.bind(assumed, within_s=60)
    kept.release(assumed)
    assert (POD.uid in kept, kept.settled, kept.counts.unanswered) == (True, False, 1)


async def test_what_is_refused_counts_until_it_is_released() -> None:
    kept = assumed_pods(Bindings(BindRefusedError("not today")))
    assumed = AssumedPod(POD, "w0", 0)
    kept.add(assumed)
    with pytest.raises(BindRefusedError):
        await kept.bind(assumed, within_s=60)
    assert POD.uid in kept
    kept.release(assumed)
    assert (POD.uid in kept, kept.settled, kept.counts.refused) == (False, True, 1)


async def test_a_replica_that_does_not_lead_any_more_asks_for_nothing() -> None:
    kept = assumed_pods(Bindings(AssertionError("asked")))
    with pytest.raises(BindRefusedError, match="does not lead"):
        await kept.bind(AssumedPod(POD, "w0", 0), within_s=0)


class LookUps:
    """Binds whatever it is given; knows no pod, does not answer for one of them, or fails. Counts its look-ups."""

    def __init__(self, hang: str = "", problem: Exception | None = None) -> None:
        self._hang = hang
        self._problem = problem
        self.asked = 0

    async def bind(self, pod: PodRef, node: str, marks: Mapping[str, str] = {}) -> None:
        """Answered, and the watch says nothing."""

    async def node_of(self, pod: PodRef) -> str | None:
        self.asked += 1
        if pod.uid == self._hang:
            await asyncio.Event().wait()
        if self._problem is not None:
            raise self._problem
        return None


async def bound_unseen(kept: AssumedPods[AssumedPod], count: int) -> None:
    """Pods whose bind was answered, and of which nothing is seen for as long as they count without a look."""
    for number in range(count):
        assumed = AssumedPod(PodRef("team", f"p-{number}", f"uid-{number}"), "w0", asyncio.get_running_loop().time())
        kept.add(assumed)
        await kept.bind(assumed, within_s=60)


def test_a_bound_pod_that_is_not_seen_counts_for_some_time_and_is_looked_up_then() -> None:
    async def work() -> None:
        kept = assumed_pods(LookUps(), unclear_s=5, assumed_s=30)
        await bound_unseen(kept, 1)
        looking = asyncio.create_task(kept.run())
        await asyncio.sleep(29)
        assert len(kept) == 1
        await asyncio.sleep(3)
        assert (len(kept), kept.counts.given_up) == (0, 1)
        looking.cancel()
        await asyncio.wait([looking])

    run_virtually(work())


def test_a_look_that_hangs_keeps_no_other_waiting() -> None:
    async def work() -> None:
        kept = assumed_pods(LookUps(hang="uid-0"), unclear_s=5, assumed_s=30)
        await bound_unseen(kept, 50)
        looking = asyncio.create_task(kept.run())
        await asyncio.sleep(40)
        assert len(kept) == 1
        looking.cancel()
        await asyncio.wait([looking])
        assert looking.cancelled()

    run_virtually(work())


@pytest.mark.parametrize("problem", [ClusterUnavailableError("forbidden"), ValueError("what a library raises")])
def test_looks_that_fail_are_repeated_with_pauses(problem: Exception) -> None:
    async def work() -> None:
        looks = LookUps(problem=problem)
        kept = assumed_pods(looks, unclear_s=5, assumed_s=30)
        await bound_unseen(kept, 1)
        looking = asyncio.create_task(kept.run())
        await asyncio.sleep(30 + 61)
        assert (len(kept), 8 <= looks.asked <= 13) == (1, True)
        looking.cancel()
        await asyncio.wait([looking])

    run_virtually(work())

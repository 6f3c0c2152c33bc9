"""Pods that count before they are seen on their nodes, whatever becomes of the call that binds them."""

from collections.abc import Mapping

import pytest

from pod_scheduling.ports.pod_binding import BindRefusedError, PodRef
from pod_scheduling.usecases.assumed_pods import AssumedPod, AssumedPods, BindUnansweredError

POD = PodRef("team", "p-0", "uid-0")


class Bindings:
    """Answers every bind with an error."""

    def __init__(self, problem: Exception) -> None:
        self._problem = problem

    async def bind(self, pod: PodRef, node: str, marks: Mapping[str, str] = {}) -> None:
        raise self._problem

    async def node_of(self, pod: PodRef) -> str | None:
        return None


class Kept(AssumedPods[AssumedPod]):
    def _freed(self, assumed: AssumedPod) -> None:
        del assumed


async def test_after_an_error_that_nobody_expected_a_bind_may_still_be_carried_out() -> None:
    kept = Kept(Bindings(ValueError("what a library raises")), unclear_s=60, assumed_s=60)
    assumed = AssumedPod(POD, "w0", 0)
    kept.put(assumed)
    with pytest.raises(BindUnansweredError, match="not known: what a library raises"):
        await kept.bind(assumed, within_s=60)
    kept.release(assumed)
    assert (POD.uid in kept, kept.settled, kept.counts.unanswered) == (True, False, 1)


async def test_what_is_refused_counts_until_it_is_released() -> None:
    kept = Kept(Bindings(BindRefusedError("not today")), unclear_s=60, assumed_s=60)
    assumed = AssumedPod(POD, "w0", 0)
    kept.put(assumed)
    with pytest.raises(BindRefusedError):
        await kept.bind(assumed, within_s=60)
    assert POD.uid in kept
    kept.release(assumed)
    assert (POD.uid in kept, kept.settled, kept.counts.refused) == (False, True, 1)


async def test_a_replica_that_does_not_lead_any_more_asks_for_nothing() -> None:
    kept = Kept(Bindings(AssertionError("asked")), unclear_s=60, assumed_s=60)
    with pytest.raises(BindRefusedError, match="does not lead"):
        await kept.bind(AssumedPod(POD, "w0", 0), within_s=0)

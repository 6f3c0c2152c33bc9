"""The webhook's second reviewer: when it asks, what it asks, and that it asks nobody in vain."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given

from pod_scheduling.domain.enforcement.booking_rulings import EnforcementRules, Silence, Standing, Unbooked
from pod_scheduling.domain.enforcement.enforcement_marks import ENFORCEMENT_MARKS
from pod_scheduling.domain.enforcement.pod_owners import OwnerRules
from pod_scheduling.domain.enforcement.remembered_standings import StandingQuestion
from pod_scheduling.domain.maps.map_injection import InjectionRules
from pod_scheduling.usecases.enforcement.review_booking import BookingReviewer, BookingReviewRules
from pod_scheduling.usecases.maps.review_pod import MapReviewer, review_pod
from reservation_core.domain.pods.reviews import Denied, Operation, Patched, PodReview, Requester, Untouched
from tests.clusters.pod_strategies import pods
from tests.examples import examples
from tests.virtual_time import run_virtually

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
BOOKED = Standing(schedulable=True, reason="booked", until=NOW + timedelta(hours=2), booking_id="bkg-1")
OWNERS = OwnerRules(prefixes=("oidc:",), namespaces={"vision": "ann"})


class StoppedClock:
    """Always the same."""

    def now(self) -> datetime:
        """The time."""
        return NOW


@dataclass
class Knows:
    """Says what it is told to, and remembers what it was asked."""

    standing_now: Standing | None = BOOKED
    asked: list[tuple[StandingQuestion, float]] = field(default_factory=list)

    async def standing(self, question: StandingQuestion, limit_s: float) -> Standing | None:
        """The same for all."""
        self.asked.append((question, limit_s))
        return self.standing_now


def reviewer(knows: Knows, **rules: Any) -> BookingReviewer:
    return BookingReviewer(knows, lambda: OWNERS, BookingReviewRules(EnforcementRules(**rules)), StoppedClock())


def pod(gpus: int = 1, **metadata: Any) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    return {
        "metadata": {"name": "notebook", **metadata},
        "spec": {
            "containers": [{"name": "main", "resources": {"limits": limits}}],
            "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
        },
    }


def review(body: Any, user: str = "oidc:ann", operation: Operation = Operation.CREATE, **more: Any) -> PodReview:
    return PodReview(operation, body, namespace="vision", requester=Requester(user), **more)


async def test_what_a_pod_needs_is_asked_of_its_owner_and_a_dry_run_as_the_real_thing() -> None:
    knows = Knows()
    controller = "system:serviceaccount:kube-system:replicaset-controller"
    for user, dry_run in (("oidc:ann", False), ("oidc:ann", True), (controller, False)):
        verdict = await reviewer(knows).review(review(pod(2), user, dry_run=dry_run))
        assert isinstance(verdict, Patched)
        assert verdict.pod["metadata"]["annotations"]["gpu-dev/booking"] == "bkg-1"
    assert knows.asked == [(StandingQuestion("ann", "vision", "h100", 2), 0.15)] * 3


async def test_nobody_is_asked_where_the_answer_changes_nothing() -> None:
    knows = Knows()
    mine = reviewer(knows)
    seen = pod(1)
    seen["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    assert await mine.review(review(pod(0))) == Untouched()
    assert isinstance(await mine.review(review(pod(1), "stranger")), Denied)
    assert isinstance(await mine.review(review(seen)), Denied)
    assert await mine.review(review(pod(1), operation=Operation.UPDATE, old_pod=pod(1))) == Untouched()
    assert await mine.review(review(None, operation=Operation.DELETE, old_pod=pod(1))) == Untouched()
    assert await mine.review(review(pod(1), subresource="binding")) == Untouched()
    assert knows.asked == []


@pytest.mark.parametrize("silence", list(Silence))
async def test_nobody_can_say(silence: Silence) -> None:
    verdict = await reviewer(Knows(None), silence=silence).review(review(pod(1)))
    assert isinstance(verdict, Patched if silence is Silence.FAIL_OPEN else Denied)


@pytest.mark.parametrize("unbooked", list(Unbooked))
@pytest.mark.parametrize(
    "standing",
    [BOOKED, replace(BOOKED, nodes=("node1", "node2")), Standing(schedulable=False, reason="no")],
    ids=["booked", "on nodes", "not booked"],
)
@examples(60)
@given(body=pods())
def test_twice_is_once_whatever_the_pod_looks_like(
    unbooked: Unbooked, standing: Standing, body: dict[str, Any]
) -> None:
    forged = {
        **body,
        "metadata": {**(body.get("metadata") or {}), "annotations": dict.fromkeys(ENFORCEMENT_MARKS, "x")},
    }
    reviewers = (MapReviewer(InjectionRules(own_cards=True)), reviewer(Knows(standing), unbooked=unbooked))

    async def twice() -> None:
        verdict = await review_pod(review(forged), reviewers)
        if isinstance(verdict, Denied):
            return
        assert isinstance(verdict, Patched)
        kept = verdict.pod["metadata"]["annotations"]
        assert "x" not in {kept.get(name) for name in ENFORCEMENT_MARKS}
        again = await review_pod(review(verdict.pod), reviewers)
        assert isinstance(again, Untouched), again

    run_virtually(twice())

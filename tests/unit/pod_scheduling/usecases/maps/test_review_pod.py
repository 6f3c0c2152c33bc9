"""Several who have a say about one pod."""

import json
from dataclasses import dataclass, field

import jsonpatch
import pytest

from pod_scheduling.domain.maps.map_injection import InjectionRules
from pod_scheduling.usecases.maps.review_pod import MapReviewer, review_pod
from reservation_core.domain.pods.pod_changes import PodChanges
from reservation_core.domain.pods.reviews import Denied, Operation, Patched, PodReview, Untouched, Verdict

POD = {
    "metadata": {"name": "check-0", "annotations": {"gpu-scheduling-map": "0=node1:0,1"}},
    "spec": {"schedulerName": "gpu-scheduler", "containers": [{"name": "main"}]},
}
BARE = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "main"}]}}


@dataclass
class Marks:
    """Sets an annotation, and remembers what it was asked."""

    name: str
    asked: list[PodReview] = field(default_factory=list)

    async def review(self, review: PodReview) -> Verdict:
        self.asked.append(review)
        assert review.pod is not None
        changes = PodChanges(review.pod)
        changes.annotate({self.name: "yes"})
        return Patched(changes.pod, changes.operations, (f"marked {self.name}",), (f"beware of {self.name}",))


@dataclass
class Says:
    """Always the same."""

    verdict: Verdict
    asked: int = 0

    async def review(self, review: PodReview) -> Verdict:
        self.asked += 1
        return self.verdict


async def test_each_sees_what_those_before_have_made_and_all_changes_apply() -> None:
    last = Marks("b/c")
    reviewers = [MapReviewer(InjectionRules()), Marks("a"), Says(Untouched(("careful",))), last]
    verdict = await review_pod(PodReview(Operation.CREATE, POD), reviewers)
    assert isinstance(verdict, Patched)
    operations = json.dumps([operation.as_json() for operation in verdict.operations])
    assert jsonpatch.apply_patch(POD, json.loads(operations)) == verdict.pod
    annotations = verdict.pod["metadata"]["annotations"]
    assert (annotations["a"], annotations["b/c"], annotations["gpu-dev/map-node"]) == ("yes", "yes", "node1")
    assert verdict.log == (
        "Injecting CUDA_VISIBLE_DEVICES=0,1 for pod check-0 (index 0)",
        "marked a",
        "marked b/c",
    )
    assert verdict.warnings == ("beware of a", "careful", "beware of b/c")
    assert last.asked[0].pod is not None
    assert last.asked[0].pod["metadata"]["annotations"]["a"] == "yes"


async def test_two_who_add_the_first_annotation_don_t_overwrite_each_other() -> None:
    verdict = await review_pod(PodReview(Operation.CREATE, BARE), [Marks("a"), Marks("b")])
    assert isinstance(verdict, Patched)
    assert jsonpatch.apply_patch(BARE, [operation.as_json() for operation in verdict.operations]) == verdict.pod
    assert verdict.pod["metadata"]["annotations"] == {"a": "yes", "b": "yes"}


async def test_the_first_denial_ends_it() -> None:
    after = Says(Untouched())
    denial = Denied("no")
    assert await review_pod(PodReview(Operation.CREATE, POD), [Marks("a"), Says(denial), after]) is denial
    assert after.asked == 0


@pytest.mark.parametrize("reviewers", [[], [Says(Untouched())], [Says(Patched(BARE, ()))]])
async def test_nothing_to_change_is_untouched(reviewers: list[Says]) -> None:
    assert await review_pod(PodReview(Operation.CREATE, BARE), reviewers) == Untouched()

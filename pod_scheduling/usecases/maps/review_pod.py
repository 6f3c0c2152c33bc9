"""Ask all reviewers about a pod, one after the other: each sees the pod as changed by those before."""

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from pod_scheduling.domain.extender.visible_cards import VisibleCardsRules, visible_cards
from pod_scheduling.domain.maps.map_injection import InjectionRules, injection
from pod_scheduling.domain.maps.remembered_maps import KnownMaps
from pod_scheduling.ports.reviewers import PodReviewer
from reservation_core.domain.pods.pod_changes import PatchOperation
from reservation_core.domain.pods.reviews import Denied, Patched, PodReview, Untouched, Verdict


class MapReviewer:
    """Tells pods with a scheduling map their cards. `maps`: what was read before, of other reviewers too."""

    def __init__(self, rules: InjectionRules, maps: KnownMaps | None = None) -> None:
        self._rules = rules
        self._maps = maps or KnownMaps()

    async def review(self, review: PodReview) -> Verdict:
        """The verdict of the map alone."""
        return injection(review, self._rules, self._maps.read)


class VisibleCardsReviewer:
    """Tells pods that ask for it where their cards will stand."""

    def __init__(self, rules: VisibleCardsRules) -> None:
        self._rules = rules

    async def review(self, review: PodReview) -> Verdict:
        """The verdict of the pod's label alone."""
        return visible_cards(review, self._rules)


async def review_pod(review: PodReview, reviewers: Sequence[PodReviewer]) -> Verdict:
    """The verdict of all: the first who denies ends it; changes, warnings and lines for the log add up."""
    pod = review.pod
    operations: list[PatchOperation] = []
    log: list[str] = []
    warnings: list[str] = []
    for reviewer in reviewers:
        verdict = await reviewer.review(replace(review, pod=pod))
        match verdict:
            case Denied():
                return verdict
            case Untouched():
                warnings += verdict.warnings
            case Patched():
                pod = verdict.pod
                operations += verdict.operations
                log += verdict.log
                warnings += verdict.warnings
            case _:
                assert_never(verdict)
    if not operations or pod is None:
        return Untouched(tuple(warnings))
    return Patched(pod, tuple(operations), tuple(log), tuple(warnings))

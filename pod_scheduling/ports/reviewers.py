"""Reviewers of pods at admission."""

from typing import Protocol

from reservation_core.domain.pods.reviews import PodReview, Verdict


class PodReviewer(Protocol):
    """Decides about pods that are about to be created or changed. It changes nothing itself: not even in earnest."""

    async def review(self, review: PodReview) -> Verdict:
        """The verdict, within the time that the API server waits. Bad pods are denied, never raised about."""
        ...

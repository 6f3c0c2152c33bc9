"""Whether a pod that asks for GPUs may be, by its owner's booking: asked of the webhook where bookings are enforced."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pod_scheduling.domain.enforcement.booking_rulings import EnforcementRules, enforcement
from pod_scheduling.domain.enforcement.pod_gpus import GpuNeed, need_of
from pod_scheduling.domain.enforcement.pod_owners import OwnerRules, owner_of
from pod_scheduling.domain.enforcement.remembered_standings import StandingQuestion
from pod_scheduling.domain.enforcement.uncounted_gpus import uncounted_gpus
from pod_scheduling.ports.standings import Standings
from reservation_core.domain.cards.gpu_types import DEFAULT_NAMES, TypeNames
from reservation_core.domain.pods.map_marks import SCHEDULER_NAME
from reservation_core.domain.pods.reviews import Denied, Operation, PodReview, Verdict
from reservation_core.ports.clock import Clock


@dataclass(frozen=True, slots=True)
class BookingReviewRules:
    """The enforcement rules, how a pod's need is read, and how long (seconds) a review waits for the service.

    `shares`: the resource of parts of cards, where they are refused.
    """

    enforcement: EnforcementRules
    type_labels: Sequence[str] = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "gpu-dev/gpu-type")
    words: TypeNames = DEFAULT_NAMES
    map_scheduler: str = SCHEDULER_NAME
    allow_claims: bool = False
    shares: str | None = None
    limit_s: float = 0.15


class BookingReviewer:
    """See pod_scheduling.ports.reviewers.PodReviewer. `owners` gives the rules of the moment."""

    def __init__(
        self, standings: Standings, owners: Callable[[], OwnerRules], rules: BookingReviewRules, clock: Clock
    ) -> None:
        self._standings = standings
        self._owners = owners
        self._rules = rules
        self._clock = clock

    async def review(self, review: PodReview) -> Verdict:
        """The verdict, soon after `limit_s` at the latest."""
        rules = self._rules
        need = GpuNeed(0)
        if review.pod is not None:
            resources = tuple(rules.enforcement.gpu_resources)
            need = need_of(review.pod, resources, tuple(rules.type_labels), rules.map_scheduler, rules.words)
        reason = uncounted_gpus(review, need, allow_claims=rules.allow_claims, shares=rules.shares)
        if reason is not None:
            return Denied(reason)
        owner = owner_of(review.requester, review.namespace, self._owners())
        standing = None
        if review.operation is Operation.CREATE and not review.subresource and need.gpus and owner is not None:
            question = StandingQuestion(owner, review.namespace, need.gpu_type, need.gpus)
            standing = await self._standings.standing(question, rules.limit_s)
        return enforcement(review, need, owner, standing, rules.enforcement, self._clock.now())

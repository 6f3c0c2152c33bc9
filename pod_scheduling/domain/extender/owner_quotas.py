"""What owners of pods have of each type of card, held against the policy's `max_gpus`: by the ledger, and by pods
beside it.

Only where bookings are enforced it is known whose a pod is. A pod on a booking is in the ledger already, and within the
quotas that the booking was made by. Pods have no project, so quotas of projects are not asked.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pod_scheduling.domain.extender.model_usage import UNSEEN, Model, ModelUsage, shown
from pod_scheduling.domain.placement.tasks import WHOLE
from reservation_core.domain.cards.gpu_types import UNKNOWN
from reservation_core.domain.policy.limits import NO_POLICY, Policy
from reservation_core.domain.policy.nouns import Scope
from reservation_core.domain.policy.rule_words import scope_text


@dataclass(frozen=True, slots=True)
class LedgerHoldings:
    """The policy, and how many cards each user holds now, by type."""

    policy: Policy = NO_POLICY
    cards: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OwnedPod:
    """The owner of a pod, as the webhook wrote it. `booked`: its cards are a booking's."""

    uid: str
    namespace: str
    owner: str | None
    booked: bool = False


class OwnerQuotas:
    """Cards in thousandths. Claims are as `model_usage` has them."""

    def __init__(self) -> None:
        self._ledger = LedgerHoldings()
        self._pods = ModelUsage()
        self._enforced: set[str] = set()

    def know(self, ledger: LedgerHoldings) -> None:
        """Set what the ledger says now."""
        self._ledger = ledger

    def enforce(self, namespace: str, *, enforced: bool) -> None:
        """Set whether bookings are enforced in a namespace: only there do pods' owner annotations count."""
        (self._enforced.add if enforced else self._enforced.discard)(namespace)

    def use(self, pod: OwnedPod, model: Model, milli: int) -> None:
        """Set a pod's usage, of one model. Its claim ends."""
        self._pods.use(pod.uid, _key(pod.namespace, pod.owner), model, milli if _beside_the_ledger(pod) else 0)

    def leave(self, uid: str) -> None:
        """Remove a pod's usage and its claim."""
        self._pods.leave(uid)
        self._pods.drop_claim(uid)

    def claim(self, pod: OwnedPod, models: Iterable[Model], milli: int, until_s: float) -> None:
        """Claim models for a pod."""
        if _beside_the_ledger(pod):
            self._pods.claim(pod.uid, _key(pod.namespace, pod.owner), models, milli, until_s)

    def drop_claim(self, uid: str) -> None:
        """Drop the claim of a pod."""
        self._pods.drop_claim(uid)

    def end_claims(self, now_s: float) -> None:
        """Drop expired claims."""
        self._pods.end_claims(now_s)

    def denial(self, pod: OwnedPod, milli: int, model: Model) -> str | None:
        """Why a pod that asks for so much may not go to nodes of this model; None when it may."""
        if pod.owner is None or pod.booked or pod.namespace not in self._enforced:
            return None
        limit = self._ledger.policy.limits(pod.owner, None, _type_of(model)).max_gpus
        if limit is None or limit.value is None:
            return None
        allowed, what = limit.value * WHOLE, limit.scope.gpu_type or "GPUs"
        used = self._used(pod, limit.scope)
        if used + milli <= allowed:
            return None
        by = f"that the policy allows at once ({scope_text(limit.scope)})"
        if milli > allowed:
            return (
                f"the pod asks for {shown(milli)} {what}, and {shown(allowed)} are all {by}; ask for less, or ask an "
                f"administrator"
            )
        more = "" if used >= allowed else f" and this pod asks for {shown(milli)}"
        return f"{pod.owner} holds {shown(used)} of the {shown(allowed)} {what} {by}{more}; end something, or wait"

    def _used(self, pod: OwnedPod, scope: Scope) -> int:
        """What the owner has that counts against a quota of this scope, but for the pod itself."""
        held = self._ledger.cards.get(pod.owner or "", {})
        total = WHOLE * sum(cards for gpu_type, cards in held.items() if scope.gpu_type in (None, gpu_type))
        for namespace in self._enforced:
            key = _key(namespace, pod.owner)
            total += self._pods.total(key, lambda model: _counts(scope, model), but_for=pod.uid)
        return total


def _beside_the_ledger(pod: OwnedPod) -> bool:
    return pod.owner is not None and not pod.booked


def _key(namespace: str, owner: str | None) -> str:
    return f"{namespace}/{owner}"


def _type_of(model: Model) -> str:
    return model.gpu_type or UNKNOWN


def _counts(scope: Scope, model: Model) -> bool:
    return model == UNSEEN or scope.gpu_type in (None, _type_of(model))

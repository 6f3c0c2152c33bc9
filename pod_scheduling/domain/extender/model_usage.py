"""Usage of namespaces by GPU model, compared with their quotas: bound, assumed and claimed."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from pod_scheduling.domain.extender.model_quotas import NO_QUOTAS, ModelQuotas, NamespaceQuota
from pod_scheduling.domain.placement.tasks import WHOLE
from reservation_core.domain.cards.gpu_types import DEFAULT_NAMES, TypeNames


@dataclass(frozen=True, slots=True)
class Model:
    """The GPU model of a node: the value of the model label, empty without one, and the normalised type."""

    label: str
    gpu_type: str


UNSEEN = Model("", "?")
"""Of a node that was never seen: what is there counts against every quota of its namespace."""


def model_of(label: str, words: TypeNames = DEFAULT_NAMES) -> Model:
    """A node's model by its label's value; `words` are the administrators' for types."""
    return Model(label, words.of(label) if label else "")


@dataclass(frozen=True, slots=True)
class _Use:
    namespace: str
    model: Model
    milli: int


@dataclass(frozen=True, slots=True)
class _Claim:
    namespace: str
    milli: int
    until_s: Mapping[Model, float]


class ModelUsage:
    """Cards in thousandths. A claim is for a pod of which it is not known yet where it goes: it counts everywhere that
    it may, until it is bound or the claim ends."""

    def __init__(self, model_label: str = "nvidia.com/gpu.product", pool_label: str = "gpu-pool") -> None:
        self.quotas: ModelQuotas = NO_QUOTAS
        self._model_label = model_label
        self._pool_label = pool_label
        self._uses: dict[str, _Use] = {}
        self._sums: dict[str, dict[Model, int]] = {}
        self._claims: dict[str, _Claim] = {}
        self._claimed: dict[str, set[str]] = {}

    def use(self, uid: str, namespace: str, model: Model, milli: int) -> None:
        """Set a pod's usage, of one model. Its claim ends."""
        self.drop_claim(uid)
        now = _Use(namespace, model, milli)
        if self._uses.get(uid) == now:
            return
        self.leave(uid)
        if milli:
            self._uses[uid] = now
            self._add(now, milli)

    def counts(self, uid: str) -> bool:
        """Whether a pod has usage."""
        return uid in self._uses

    def leave(self, uid: str) -> None:
        """Remove a pod's usage."""
        use = self._uses.pop(uid, None)
        if use is not None:
            self._add(use, -use.milli)

    def claim(self, uid: str, namespace: str, models: Iterable[Model], milli: int, until_s: float) -> None:
        """Claim models for a pod, beside its earlier claims: a scheduler may ask node by node."""
        claimed = {} if (former := self._claims.get(uid)) is None else dict(former.until_s)
        claimed |= dict.fromkeys(models, until_s)
        if milli and claimed and uid not in self._uses:
            self._claims[uid] = _Claim(namespace, milli, claimed)
            self._claimed.setdefault(namespace, set()).add(uid)

    def drop_claim(self, uid: str) -> None:
        """Drop the claim of a pod."""
        claim = self._claims.pop(uid, None)
        if claim is not None:
            of_namespace = self._claimed[claim.namespace]
            of_namespace.discard(uid)
            if not of_namespace:
                del self._claimed[claim.namespace]

    def has_claim(self, uid: str) -> bool:
        """Whether a pod has a claim."""
        return uid in self._claims

    def claimed_by(self, uid: str) -> Collection[Model]:
        """The models that a pod claims."""
        claim = self._claims.get(uid)
        return () if claim is None else tuple(claim.until_s)

    def claims_due(self, now_s: float) -> list[str]:
        """Pods of which a claim has expired."""
        return [uid for uid, claim in self._claims.items() if min(claim.until_s.values()) <= now_s]

    def end_claims(self, now_s: float) -> None:
        """Drop expired claims."""
        for uid in self.claims_due(now_s):
            claim = self._claims[uid]
            self.drop_claim(uid)
            for model, until_s in claim.until_s.items():
                if until_s > now_s:
                    self.claim(uid, claim.namespace, (model,), claim.milli, until_s)

    @property
    def claims(self) -> int:
        """The number of pods with a claim."""
        return len(self._claims)

    def used(self, namespace: str, quota: NamespaceQuota, word: str, but_for: str | None = None) -> int:
        """How much a namespace uses, and has claimed, of the models that a quota's word stands for."""
        return self.total(namespace, lambda model: _is(word, model, quota), but_for)

    def claimed(self, namespace: str, counts: Callable[[Model], bool], but_for: str | None = None) -> int:
        """How much is only claimed in a namespace, of the models that count; without the pod `but_for`."""
        claims = (self._claims[uid] for uid in self._claimed.get(namespace, ()) if uid != but_for)
        return sum(claim.milli for claim in claims if any(counts(model) for model in claim.until_s))

    def total(self, namespace: str, counts: Callable[[Model], bool], but_for: str | None = None) -> int:
        """How much a namespace uses, and has claimed, of the models that count; without the pod `but_for`."""
        total = sum(milli for model, milli in self._sums.get(namespace, {}).items() if counts(model))
        own = self._uses.get(but_for) if but_for is not None else None
        if own is not None and own.namespace == namespace and counts(own.model):
            total -= own.milli
        return total + self.claimed(namespace, counts, but_for)

    def denial(self, uid: str, namespace: str, milli: int, model: Model, pool: str) -> str | None:
        """Why a pod that asks for so much may not go to nodes of this model and pool; None when it may."""
        quota = self.quotas.of(namespace)
        if quota is None:
            return None
        if quota.pools and pool not in quota.pools:
            where = f"is in the pool {pool}" if pool else f"is in no pool (no label {self._pool_label})"
            return (
                f"namespace {namespace} may use GPUs of the pools {_listed(quota.pools)}, and this node {where}; "
                f"ask an administrator"
            )
        if quota.models is None:
            return None
        word = quota.word_for(model.label, model.gpu_type)
        if word is None:
            may = f"it may use {_listed(quota.models)}" if quota.models else "it may use none"
            what = model.label or f"of this node, which does not say its model (no label {self._model_label})"
            return f"namespace {namespace} has no quota for GPUs {what}: {may}; ask an administrator"
        limit = quota.models[word]
        used = self.used(namespace, quota, word, but_for=uid)
        if used + milli <= limit:
            return None
        if milli > limit:
            return (
                f"the pod asks for {shown(milli)} {word}, and the quota of namespace {namespace} is {shown(limit)}; "
                f"ask for less, or ask an administrator"
            )
        claimed = self.claimed(namespace, lambda each: _is(word, each, quota), but_for=uid)
        soon = f", {shown(claimed)} of that for pods that are just being scheduled" if claimed else ""
        more = "" if used >= limit else f"{',' if claimed else ''} and this pod asks for {shown(milli)}"
        return (
            f"GPU quota of namespace {namespace}: {shown(used)} of {shown(limit)} {word} used{soon}{more}; "
            f"ask an administrator, or wait"
        )

    def _add(self, use: _Use, milli: int) -> None:
        of_namespace = self._sums.setdefault(use.namespace, {})
        left = of_namespace.get(use.model, 0) + milli
        if left:
            of_namespace[use.model] = left
            return
        of_namespace.pop(use.model, None)
        if not of_namespace:
            del self._sums[use.namespace]


def _is(word: str, model: Model, quota: NamespaceQuota) -> bool:
    return model == UNSEEN or quota.word_for(model.label, model.gpu_type) == word


def shown(milli: int) -> str:
    """An amount of cards: `8`, `0.5`."""
    return f"{milli / WHOLE:g}" if milli % WHOLE else str(milli // WHOLE)


def _listed(names: Collection[str]) -> str:
    found = sorted(names)
    return ", ".join(name or '""' for name in found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")

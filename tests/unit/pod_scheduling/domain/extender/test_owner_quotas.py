"""Owners of pods held to the policy: what counts, what is told, and any sequence against a count from the beginning."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pod_scheduling.domain.extender.asked_cards import AskedCards
from pod_scheduling.domain.extender.cards_in_use import CardPod, CardsInUse
from pod_scheduling.domain.extender.model_usage import UNSEEN, Model, ModelUsage, model_of
from pod_scheduling.domain.extender.owner_quotas import LedgerHoldings, OwnedPod, OwnerQuotas
from reservation_core.domain.policy.limits import UNLIMITED, Policy, PolicyRule, Rules
from reservation_core.domain.policy.nouns import Scope

H100, PCIE, T4, BARE = (model_of(label) for label in ("NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-PCIe", "Tesla-T4", ""))


def rule(limit: int | None, **scope: str) -> PolicyRule:
    return PolicyRule(Scope(**scope), Rules(max_gpus=UNLIMITED if limit is None else limit))


def pod(uid: str = "asking", owner: str | None = "ann", namespace: str = "a", *, booked: bool = False) -> OwnedPod:
    return OwnedPod(uid, namespace, owner, booked=booked)


def quotas(*rules: PolicyRule, **held: dict[str, int]) -> OwnerQuotas:
    made = OwnerQuotas()
    made.know(LedgerHoldings(Policy(rules), held))
    made.enforce("a", enforced=True)
    return made


def test_the_ledger_and_pods_beside_it_count_together() -> None:
    made = quotas(rule(4, gpu_type="h100"), ann={"h100": 1, "t4": 8}, bob={"h100": 4})
    made.use(pod("one"), H100, 1500)
    made.use(pod("two"), T4, 4000)
    made.use(pod("three", "bob"), H100, 1000)
    made.use(pod("four", booked=True), H100, 1000)
    assert made.denial(pod(), 1500, PCIE) is None
    assert made.denial(pod(), 1510, PCIE) == (
        "ann holds 2.5 of the 4 h100 that the policy allows at once (everybody, h100) and this pod asks for 1.51; "
        "end something, or wait"
    )
    assert made.denial(pod(), 64_000, T4) is None
    made.use(pod("five"), PCIE, 1500)
    assert made.denial(pod(), 10, H100) == (
        "ann holds 4 of the 4 h100 that the policy allows at once (everybody, h100); end something, or wait"
    )
    assert made.denial(pod("five"), 1500, H100) is None  # it counts already
    made.leave("one")
    assert made.denial(pod(), 1500, H100) is None


def test_what_is_not_claimed_any_more_counts_for_nobody() -> None:
    cards = CardsInUse(ModelUsage())
    cards.owners.know(LedgerHoldings(Policy([rule(1, gpu_type="t4")]), {}))
    cards.enforce("a", enforced=True)
    claiming = CardPod("one", "a", "one", AskedCards(plugin=1, milli=1000), owner="ann")
    cards.claim(claiming, [T4], 60)
    assert cards.owners.denial(pod(), 1000, T4) is not None
    cards.drop_claim("one")
    assert cards.owners.denial(pod(), 1000, T4) is None
    assert cards.usage.claims == 0


def test_more_than_is_allowed_at_all_is_said_so() -> None:
    assert quotas(rule(2, user="ann")).denial(pod(), 3000, T4) == (
        "the pod asks for 3 GPUs, and 2 are all that the policy allows at once (user ann); ask for less, or ask an "
        "administrator"
    )


@pytest.mark.parametrize(
    "asking", [pod(owner=None), pod(booked=True), pod(namespace="not enforced"), pod(owner="free"), pod(owner="bob")]
)
def test_who_is_not_judged(asking: OwnedPod) -> None:
    made = quotas(rule(0, user="ann"), rule(None, user="free"), rule(0, project="lab"), rule(9))
    assert made.denial(asking, 9000, H100) is None
    assert made.denial(pod(), 10, H100) is not None


def test_a_node_without_a_model_is_of_the_type_that_the_ledger_gives_it() -> None:
    made = quotas(rule(1, gpu_type="unknown"), ann={"unknown": 1})
    assert made.denial(pod(), 10, BARE) is not None
    assert made.denial(pod(), 10, H100) is None


@dataclass
class Counted:
    """All that was said, as it was said."""

    uses: dict[str, tuple[OwnedPod, Model, int]] = field(default_factory=dict)
    claims: dict[str, tuple[OwnedPod, dict[Model, float], int]] = field(default_factory=dict)
    enforced: set[str] = field(default_factory=set)

    def may(self, asking: OwnedPod, milli: int, model: Model, ledger: LedgerHoldings) -> bool:
        if asking.owner is None or asking.booked or asking.namespace not in self.enforced:
            return True
        gpu_type = model.gpu_type or "unknown"
        by_scope = {rule.scope: rule.rules.max_gpus for rule in ledger.policy.rules}
        scopes = [Scope(asking.owner, None, gpu_type), Scope(asking.owner), Scope(None, None, gpu_type), Scope()]
        scope = next((scope for scope in scopes if scope in by_scope), None)
        if scope is None or not isinstance(limit := by_scope[scope], int):
            return True

        def counts(other: OwnedPod, models: list[Model]) -> bool:
            types = [listed_model.gpu_type or "unknown" for listed_model in models]
            typed = scope.gpu_type is None or UNSEEN in models or scope.gpu_type in types
            return (
                typed and other.owner == asking.owner and other.uid != asking.uid and other.namespace in self.enforced
            )

        pods = sum(amount for other, at, amount in self.uses.values() if not other.booked and counts(other, [at]))
        claimed = sum(amount for other, at, amount in self.claims.values() if counts(other, list(at)))
        held = ledger.cards.get(asking.owner, {}).items()
        cards = sum(number for held_type, number in held if scope.gpu_type in (None, held_type))
        return cards * 1000 + pods + claimed + milli <= limit * 1000


_UIDS = ["p", "q", "r", "s"]
_OWNERS = {"p": "ann", "q": "ann", "r": "bob", "s": None}
_MODELS = st.sampled_from([H100, PCIE, T4, BARE])
_PODS = st.builds(
    lambda uid, namespace, booked: OwnedPod(uid, namespace, _OWNERS[uid], booked=booked),
    st.sampled_from(_UIDS), st.sampled_from(["a", "b"]), st.booleans(),
)  # fmt: skip
_SCOPES = [Scope(user, None, kind) for user in (None, "ann", "bob") for kind in (None, "h100", "t4", "unknown")]
_POLICIES = st.dictionaries(st.sampled_from(_SCOPES), st.one_of(st.integers(0, 6), st.just(UNLIMITED)), max_size=5).map(
    lambda found: Policy(PolicyRule(scope, Rules(max_gpus=limit)) for scope, limit in found.items())
)
_LEDGERS = st.builds(
    LedgerHoldings,
    _POLICIES,
    st.dictionaries(
        st.sampled_from(["ann", "bob"]),
        st.dictionaries(st.sampled_from(["h100", "t4", "unknown"]), st.integers(1, 3), max_size=2),
        max_size=2,
    ),
)
_MILLI = st.sampled_from([0, 10, 500, 1000, 2000])
_STEPS = st.one_of(
    st.tuples(st.just("use"), _PODS, st.one_of(_MODELS, st.just(UNSEEN)), _MILLI),
    st.tuples(st.just("leave"), st.sampled_from(_UIDS)),
    st.tuples(st.just("claim"), _PODS, st.sets(_MODELS, max_size=3), _MILLI, st.integers(1, 9)),
    st.tuples(st.just("end"), st.integers(1, 9)),
    st.tuples(st.just("enforce"), st.sampled_from(["a", "b"]), st.booleans()),
)


@given(_LEDGERS, st.lists(_STEPS, max_size=14), _PODS, st.integers(0, 6).map(lambda integer: integer * 500), _MODELS)
def test_after_any_sequence_who_may_is_who_may_by_counting_anew(
    ledger: LedgerHoldings, steps: list[tuple[object, ...]], asking: OwnedPod, milli: int, model: Model
) -> None:
    made, counted = OwnerQuotas(), Counted()
    made.know(ledger)
    namespaces: dict[str, OwnedPod] = {}  # a uid is one pod's: it never changes its namespace or its booking
    for step in [("enforce", "a", True), *steps]:
        match step:
            case ("use", OwnedPod() as other, Model() as at, int() as amount):
                other = namespaces.setdefault(other.uid, other)
                made.use(other, at, amount)
                counted.claims.pop(other.uid, None)
                counted.uses.pop(other.uid, None)
                if amount:
                    counted.uses[other.uid] = other, at, amount
            case ("leave", str() as uid):
                made.leave(uid)
                counted.uses.pop(uid, None)
                counted.claims.pop(uid, None)
            case ("claim", OwnedPod() as other, set() as models, int() as amount, int() as until):
                other = namespaces.setdefault(other.uid, other)
                made.claim(other, models, amount, until)
                if not other.booked and other.owner and other.uid not in counted.uses and amount:
                    former = counted.claims.get(other.uid, (other, {}, 0))[1]
                    claimed = former | dict.fromkeys(models, float(until))
                    if claimed:
                        counted.claims[other.uid] = other, claimed, amount
            case ("end", int() as now):
                made.end_claims(now)
                left = {
                    uid: (other, {at: until for at, until in models.items() if until > now}, amount)
                    for uid, (other, models, amount) in counted.claims.items()
                }
                counted.claims = {uid: claim for uid, claim in left.items() if claim[1]}
            case ("enforce", str() as namespace, bool() as enforced):
                made.enforce(namespace, enforced=enforced)
                (counted.enforced.add if enforced else counted.enforced.discard)(namespace)
    asking = namespaces.get(asking.uid, asking)
    assert (made.denial(asking, milli, model) is None) == counted.may(asking, milli, model, ledger)


def test_all_enforced_namespaces_count_together_and_others_do_not() -> None:
    made = quotas(rule(2, user="ann"))
    made.enforce("b", enforced=True)
    made.use(pod("one", namespace="b"), T4, 1000)
    made.use(pod("two", namespace="elsewhere"), T4, 5000)
    assert made.denial(pod(), 1000, H100) is None
    assert made.denial(pod(), 1010, H100) is not None
    made.enforce("b", enforced=False)
    assert made.denial(pod(), 2000, H100) is None


def test_what_is_on_a_node_that_was_never_seen_counts_against_every_quota() -> None:
    made = quotas(rule(2, gpu_type="h100"))
    made.use(pod("one"), UNSEEN, 1500)
    assert made.denial(pod(), 510, H100) is not None


def test_a_claim_counts_until_it_is_over_or_its_pod_is_bound() -> None:
    made = quotas(rule(1))
    made.claim(pod("one"), {H100, T4}, 1000, until_s=30)
    made.claim(pod("two", booked=True), {H100}, 1000, until_s=30)
    assert made.denial(pod(), 10, BARE) is not None
    assert made.denial(pod("one"), 1000, T4) is None
    made.end_claims(30)
    assert made.denial(pod(), 1000, T4) is None

"""What namespaces use of each model: every word for it, pods in it twice, and nodes that nobody has seen."""

import pytest

from pod_scheduling.domain.extender.model_quotas import read_quotas
from pod_scheduling.domain.extender.model_usage import UNSEEN, ModelUsage, model_of, shown

H100, PCIE, T4 = model_of("NVIDIA-H100-80GB-HBM3"), model_of("NVIDIA-H100-PCIe"), model_of("Tesla-T4")


def usage(text: str = '{"a": {"quota": {"H100": 2, "Tesla-T4": 1}, "pool": ["public"]}}') -> ModelUsage:
    made = ModelUsage()
    made.quotas = read_quotas(text)
    return made


def denial(used: ModelUsage, milli: int, uid: str = "asking", label: str = "NVIDIA-H100-PCIe") -> str | None:
    return used.denial(uid, "a", milli, model_of(label), "public")


def test_all_nodes_of_a_type_count_together_and_other_models_apart() -> None:
    used = usage()
    used.use("one", "a", H100, 1000)
    used.use("two", "a", PCIE, 500)
    used.use("three", "a", T4, 1000)
    used.use("four", "b", H100, 8000)
    assert denial(used, 500) is None
    assert denial(used, 510) == (
        "GPU quota of namespace a: 1.5 of 2 H100 used and this pod asks for 0.51; ask an administrator, or wait"
    )
    used.use("five", "a", PCIE, 500)
    assert denial(used, 10) == "GPU quota of namespace a: 2 of 2 H100 used; ask an administrator, or wait"
    used.leave("one")
    assert denial(used, 1000) is None
    assert denial(used, 10, label="Tesla-T4") == (
        "GPU quota of namespace a: 1 of 1 Tesla-T4 used; ask an administrator, or wait"
    )


def test_who_counts_already_does_not_stand_in_its_own_way() -> None:
    used = usage()
    used.use("one", "a", H100, 2000)
    assert denial(used, 2000, uid="one") is None
    assert denial(used, 10) is not None
    used.use("one", "a", T4, 1000)
    assert denial(used, 2000) is None


def test_what_is_on_a_node_that_was_never_seen_counts_against_every_quota() -> None:
    used = usage()
    used.use("one", "a", UNSEEN, 1500)
    assert "1.5 of 2 H100 used" in (denial(used, 510) or "")
    assert "1.5 of 1 Tesla-T4 used" in (denial(used, 10, label="Tesla-T4") or "")
    used.use("one", "a", T4, 1000)
    assert denial(used, 2000) is None


@pytest.mark.parametrize(
    ("label", "pool", "words"),
    [
        ("NVIDIA-A100-SXM4-80GB", "public", "no quota for GPUs NVIDIA-A100-SXM4-80GB: it may use H100, Tesla-T4"),
        ("", "public", "does not say its model (no label nvidia.com/gpu.product)"),
        ("Tesla-T4", "private", "may use GPUs of the pools public, and this node is in the pool private"),
        ("Tesla-T4", "", "is in no pool (no label gpu-pool)"),
    ],
)
def test_models_and_pools_that_are_not_listed_are_denied(label: str, pool: str, words: str) -> None:
    assert words in (usage().denial("x", "a", 10, model_of(label), pool) or "")


def test_who_is_not_listed_is_not_limited_and_an_empty_quota_allows_nothing() -> None:
    used = usage('{"a": {"quota": {}}, "b": {"pool": []}, "c": {"pool": [""]}}')
    assert "it may use none" in (used.denial("x", "a", 10, T4, "") or "")
    for namespace in "bcd":
        assert used.denial("x", namespace, 10**9, T4, "") is None
    assert used.denial("x", "c", 10, T4, "public") is not None


def test_more_than_the_whole_quota_is_said_so() -> None:
    assert denial(usage(), 3000) == (
        "the pod asks for 3 H100, and the quota of namespace a is 2; ask for less, or ask an administrator"
    )


def test_a_claim_counts_wherever_its_pod_may_go_until_it_is_bound_or_over() -> None:
    used = usage()
    used.claim("one", "a", {PCIE, T4}, 1000, until_s=30)
    assert denial(used, 1010) is not None
    assert denial(used, 10, label="Tesla-T4") is not None
    assert denial(used, 2000, uid="one") is None
    assert used.claims_due(29.9) == []
    used.end_claims(29.9)
    assert used.has_claim("one")
    used.use("one", "a", PCIE, 1000)
    assert denial(used, 10, label="Tesla-T4") is None
    assert denial(used, 1010) is not None
    used.claim("one", "a", {T4}, 1000, until_s=30)  # it is bound: nothing more comes of it
    assert denial(used, 1000, label="Tesla-T4") is None
    used.claim("two", "a", {T4}, 1000, until_s=30)
    assert used.claims_due(30) == ["two"]
    used.end_claims(30)
    assert denial(used, 1000, label="Tesla-T4") is None


def test_what_is_only_claimed_is_told_apart_from_what_anybody_can_see() -> None:
    used = usage()
    used.use("one", "a", H100, 500)
    used.claim("two", "a", {H100}, 1000, until_s=30)
    assert denial(used, 1000) == (
        "GPU quota of namespace a: 1.5 of 2 H100 used, 1 of that for pods that are just being scheduled, and this pod"
        " asks for 1; ask an administrator, or wait"
    )
    assert denial(used, 1510, uid="two") == (  # its own claim is not in its way
        "GPU quota of namespace a: 0.5 of 2 H100 used and this pod asks for 1.51; ask an administrator, or wait"
    )
    used.claim("three", "a", {H100}, 500, until_s=30)
    assert denial(used, 10) == (
        "GPU quota of namespace a: 2 of 2 H100 used, 1.5 of that for pods that are just being scheduled; "
        "ask an administrator, or wait"
    )


def test_who_asks_node_by_node_claims_all_models_that_would_do_each_for_its_time() -> None:
    used = usage()
    used.claim("one", "a", {H100}, 1000, until_s=30)
    used.claim("one", "a", {T4}, 1000, until_s=40)
    used.claim("one", "a", set(), 1000, until_s=50)  # one more node was asked about, and does not do
    assert denial(used, 1010) is not None
    assert denial(used, 10, label="Tesla-T4") is not None
    assert used.claims_due(35) == ["one"]
    used.end_claims(35)
    assert denial(used, 2000) is None
    assert denial(used, 10, label="Tesla-T4") is not None
    used.end_claims(40)
    assert used.claims == 0


@pytest.mark.parametrize(("milli", "text"), [(8000, "8"), (500, "0.5"), (10, "0.01"), (12_340, "12.34"), (0, "0")])
def test_amounts_are_written_as_people_write_them(milli: int, text: str) -> None:
    assert shown(milli) == text

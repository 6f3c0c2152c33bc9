"""What administrators write as quotas, and what is said about what can't be used."""

import json
from contextlib import suppress
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pod_scheduling.domain.extender.model_quotas import (
    BadQuotasError,
    ModelQuotas,
    NamespaceQuota,
    loosened,
    read_quotas,
)
from pod_scheduling.domain.extender.model_usage import ModelUsage, model_of
from pod_scheduling.domain.placement.tasks import WHOLE

GOOD = {"team-a": {"quota": {"H100": 8}, "pool": ["public"]}}


def test_the_form_that_is_documented_is_read() -> None:
    found = read_quotas(json.dumps(GOOD))
    assert found.of("team-a") == NamespaceQuota({"H100": 8000}, frozenset({"public"}))
    assert found.of("team-b") is None


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, NamespaceQuota()),
        ({"quota": {}}, NamespaceQuota({})),
        ({"pool": []}, NamespaceQuota()),
        ({"pool": None, "quota": {"T4": 0}}, NamespaceQuota({"T4": 0})),
        ({"pool": ["", "a"]}, NamespaceQuota(None, frozenset({"", "a"}))),
    ],
)
def test_what_is_left_out_limits_nothing(said: object, expected: NamespaceQuota) -> None:
    assert read_quotas(json.dumps({"ns": said})).of("ns") == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ("[]", "must be an object of namespaces"),
        ("[" * 100_000, "not JSON"),
        ('{"a": 1, "a": 2}', '"a" stands there twice'),
        ('{"A b": {}}', 'namespace "A b": this can\'t be'),
        ('{"a": 7}', 'namespace "a": it must be an object'),
        ('{"a": {"quotas": {}}}', '"quotas" is not known here'),
        ('{"a": {"quota": [1]}}', 'namespace "a", quota: it must be an object'),
        ('{"a": {"quota": {"H100": -1}}}', 'namespace "a", quota, H100: it must be a whole number'),
        ('{"a": {"quota": {"H100": true}}}', "H100: it must be a whole number"),
        ('{"a": {"quota": {"H100": 1.5}}}', "H100: it must be a whole number"),
        ('{"a": {"quota": {"H100": "8"}}}', "H100: it must be a whole number"),
        ('{"a": {"quota": {"H100": 1000001}}}', "from 0 to 1000000"),
        ('{"a": {"quota": {"H100": 1, "h100": 2}}}', "H100 and h100 are the same model"),
        ('{"a": {"quota": {"": 1}}}', "no value that a node's label can have"),
        ('{"a": {"pool": "public"}}', 'namespace "a", pool: it must be a list of names'),
        ('{"a": {"pool": [1]}}', "pool: it must be a list of names"),
        ('{"a": {"pool": ["a b"]}}', "no value that a node's label can have"),
        (json.dumps({"a": {"pool": [str(number) for number in range(201)]}}), "200 are the most"),
        (json.dumps({"a": {"quota": {f"m{number}": 1 for number in range(201)}}}), "200 are the most"),
        (json.dumps({f"n{number}": {} for number in range(20_001)}), "20000 are the most"),
        ("{}" + " " * 2**20, "longer than"),
    ],
)
def test_what_cannot_be_used_is_named(text: str, words: str) -> None:
    with pytest.raises(BadQuotasError) as told:
        read_quotas(text)
    assert words in str(told.value)
    assert len(str(told.value)) < 500


@pytest.mark.timeout(60)  # one by one against all others they would take minutes
def test_a_name_that_stands_twice_among_very_many_is_found_at_once() -> None:
    names = [str(number) for number in range(100_000)]
    text = "{" + ",".join(f'"{name}":0' for name in [*names, names[-1]]) + "}"
    with pytest.raises(BadQuotasError, match='"99999" stands there twice'):
        read_quotas(text)


SAID = st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5).map(json.dumps)


@given(st.text(max_size=200) | SAID)
def test_whatever_stands_there_only_one_error_is_raised(text: str) -> None:
    with suppress(BadQuotasError):
        read_quotas(text)


@pytest.mark.parametrize(
    ("models", "label", "gpu_type", "word"),
    [
        ({"H100": 1}, "NVIDIA-H100-80GB-HBM3", "h100", "H100"),
        ({"h100": 1}, "NVIDIA-H100-80GB-HBM3", "h100", "h100"),
        ({"NVIDIA-H100-80GB-HBM3": 1, "h100": 2}, "NVIDIA-H100-80GB-HBM3", "h100", "NVIDIA-H100-80GB-HBM3"),
        ({"NVIDIA-H100-80GB-HBM3": 1, "h100": 2}, "NVIDIA-H100-PCIe", "h100", "h100"),
        ({"NVIDIA-H100-80GB-HBM3": 1}, "NVIDIA-H100-PCIe", "h100", None),
        ({"nvidia-h100-pcie": 1, "H100": 2}, "NVIDIA-H100-PCIe", "h100", "nvidia-h100-pcie"),
        ({"H100": 2, "NVIDIA-H100-PCIE": 1}, "NVIDIA-H100-PCIe", "h100", "NVIDIA-H100-PCIE"),
        ({"A100": 1}, "NVIDIA-A100-SXM4-80GB", "a100-80gb", None),
        ({"H100": 1}, "", "", None),
        ({}, "Tesla-T4", "t4", None),
    ],
)
def test_a_quota_names_the_label_or_the_type(
    models: dict[str, int], label: str, gpu_type: str, word: str | None
) -> None:
    assert NamespaceQuota(models).word_for(label, gpu_type) == word


_LIMITS = st.none() | st.dictionaries(st.sampled_from(["H100", "T4"]), st.integers(0, 3).map(lambda n: n * WHOLE))
_QUOTA = st.builds(NamespaceQuota, _LIMITS, st.frozensets(st.sampled_from(["", "public"])))
_QUOTAS = st.builds(ModelQuotas, st.dictionaries(st.sampled_from(["a", "b"]), _QUOTA))


def allowed(quotas: ModelQuotas, namespace: str) -> set[tuple[str, str, int]]:
    """All that a pod of a namespace may be, by asking for each."""
    usage = ModelUsage()
    usage.quotas = quotas
    return {
        (model, pool, cards)
        for model, pool, cards in product(("H100", "T4", "A100"), ("", "public"), range(1, 5))
        if usage.denial("uid", namespace, cards * WHOLE, model_of(model), pool) is None
    }


@given(_QUOTAS, _QUOTAS)
def test_a_namespace_is_looser_when_a_pod_may_be_what_it_might_not(before: ModelQuotas, after: ModelQuotas) -> None:
    looser = {name for name in "ab" if allowed(after, name) - allowed(before, name)}
    assert looser <= loosened(before, after)
    assert not loosened(before, before)
    same = {name for name in "ab" if before.of(name) == after.of(name)}
    assert not same & loosened(before, after)

"""Where a pod is that does not say what it holds."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.adapters.kubernetes.jobs.pod_places import place_of
from reservation_core.adapters.kubernetes.pods.built_pods import build_pod
from reservation_core.adapters.kubernetes.pods.gpu_attaching import GpuAttach
from reservation_core.domain.model import PodPlace
from tests.unit.reservation_core.adapters.kubernetes.pods.specs import CASES, NOW

NAMES = ("nvidia.com/gpu", "amd.com/gpu")


@pytest.mark.parametrize("case", CASES)
def test_every_pod_of_ours_has_a_place_before_it_is_bound(case: str) -> None:
    spec, rules = CASES[case]
    counted = len(spec.gpu_indices) if rules.attach is GpuAttach.DEVICE_PLUGIN else None
    assert place_of(build_pod(spec, rules, NOW), rules.attach, NAMES) == PodPlace(spec.node, counted)


def test_where_it_was_bound_to_is_where_it_is() -> None:
    spec, rules = CASES["env-affinity-single"]
    pod = build_pod(spec, rules, NOW)
    pod["spec"]["nodeName"] = "node9"
    assert place_of(pod, rules.attach, NAMES) == PodPlace("node9", None)


def test_a_pod_that_asks_the_kubelet_for_none_may_use_any() -> None:
    spec, rules = CASES["env-nodeName-single"]
    pod = build_pod(spec, rules, NOW)
    assert place_of(pod, GpuAttach.DEVICE_PLUGIN, NAMES) == PodPlace(spec.node, None)


def test_a_pod_that_may_go_to_several_nodes_is_nowhere() -> None:
    spec, rules = CASES["env-affinity-single"]
    pod = build_pod(spec, rules, NOW)
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    required["nodeSelectorTerms"][0]["matchFields"][0]["values"].append("node9")
    assert place_of(pod, rules.attach, NAMES) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(JSON, JSON, JSON)
def test_nothing_that_a_pod_holds_raises(node: Any, terms: Any, fields: Any) -> None:
    for term in (terms, [{"matchFields": fields}], [{"matchFields": [{"values": fields}]}]):
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": term}}
        for affinity in (terms, {"nodeAffinity": fields}, {"nodeAffinity": required}):
            place = place_of({"spec": {"nodeName": node, "affinity": affinity}}, GpuAttach.ENV, NAMES)
            assert place is None or isinstance(place.node, str)

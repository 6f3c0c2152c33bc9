"""Who uses GPUs of our nodes without having asked us."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.adapters.kubernetes.attaching import GpuAttach
from reservation_core.adapters.kubernetes.foreign import ForeignRules, gpus_asked_for, read_foreign
from reservation_core.adapters.kubernetes.pods import build_pod
from reservation_core.domain.model import ForeignPod
from tests.unit.reservation_core.adapters.kubernetes.specs import CASES, NOW

RULES = ForeignRules("gpu-dev")
NODES = {"node1", "node2"}


def container(requests: object = None, limits: object = None, **more: Any) -> dict[str, Any]:
    parts = {"requests": requests, "limits": limits}
    resources = {part: {"nvidia.com/gpu": amount} for part, amount in parts.items() if amount is not None}
    return {"name": "c", "resources": resources, **more}


def pod(*containers: dict[str, Any], **more: Any) -> dict[str, Any]:
    spec = {"nodeName": "node1", "containers": list(containers), **more.pop("spec", {})}
    metadata = {"name": "train", "namespace": "team", **more.pop("metadata", {})}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running", **more}}


def counted(*containers: dict[str, Any], **spec: Any) -> int:
    return gpus_asked_for(pod(*containers, spec=spec), RULES.resource_names)


def test_a_foreign_gpu_user_is_seen() -> None:
    assert read_foreign([pod(container("2"))], RULES, NODES) == [ForeignPod("node1", "team/train", 2, None)]
    plugin = ForeignRules("gpu-dev", GpuAttach.DEVICE_PLUGIN)
    assert read_foreign([pod(container("2"))], plugin, NODES) == [
        ForeignPod("node1", "team/train", 2, None, counted=True)
    ]


@pytest.mark.parametrize(
    "thing",
    [
        pod(container()),
        pod(container("0")),
        pod(container("1"), spec={"nodeName": "elsewhere"}),
        pod(container("1"), spec={"nodeName": None}),
        pod(container("1"), phase="Succeeded"),
        pod(container("1"), phase="Failed"),
    ],
)
def test_who_uses_no_gpu_of_ours(thing: dict[str, Any]) -> None:
    assert read_foreign([thing], RULES, NODES) == []


def test_a_pod_that_has_failed_but_runs_still_is_seen() -> None:
    running = [{"name": "c", "state": {"running": {}}}]
    assert len(read_foreign([pod(container("1"), phase="Failed", containerStatuses=running)], RULES, NODES)) == 1


@pytest.mark.parametrize("case", CASES)
def test_our_own_are_not_foreign_but_our_marks_elsewhere_are(case: str) -> None:
    spec, rules = CASES[case]
    ours = build_pod(spec, rules, NOW)
    ours["spec"] |= {"nodeName": "node2", "containers": [container("1")]}
    assert read_foreign([ours], RULES, NODES) == []
    ours["metadata"]["namespace"] = "team"
    assert [found.description for found in read_foreign([ours], RULES, NODES)] == [f"team/{spec.name}"]
    ours["metadata"] |= {"namespace": "gpu-dev", "name": "renamed"}
    assert [found.description for found in read_foreign([ours], RULES, NODES)] == ["gpu-dev/renamed"]


def test_how_many_gpus_a_pod_asks_for() -> None:
    assert counted(container("1"), container(None, "2")) == 3
    assert counted(container("1", "2")) == 2
    assert counted(container("1"), initContainers=[container("4"), container("3")]) == 4
    assert counted(container("2"), initContainers=[container("1")]) == 2
    beside = container("1", restartPolicy="Always")
    assert counted(container("2"), initContainers=[beside]) == 3
    assert counted(container("1"), initContainers=[beside, container("3")]) == 4
    assert counted(container("1"), initContainers=[container("3"), beside]) == 3
    assert counted(container(), resourceClaims=[{"name": "a"}, {"name": "b"}]) == 2
    assert counted({"name": "c", "resources": {"limits": {"amd.com/gpu": 1, "cpu": "9"}}}) == 1
    assert counted({"name": "c", "resources": {"limits": {"intel.com/gpu": 1}}}) == 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(JSON, JSON, JSON, JSON)
def test_nothing_that_a_pod_holds_raises(metadata: Any, containers: Any, resources: Any, claims: Any) -> None:
    spec = {"nodeName": "node1", "initContainers": containers, "resourceClaims": claims}
    listed = [{"resources": resources}, {"resources": {"limits": {"nvidia.com/gpu": resources}}}]
    thing = {"metadata": metadata, "spec": {**spec, "containers": listed}, "status": metadata}
    assert all(found.gpu_count > 0 for found in read_foreign([thing, {"spec": resources}], RULES, NODES))

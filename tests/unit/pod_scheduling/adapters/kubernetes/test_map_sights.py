"""What the scheduler takes from nodes and pods as the API has them, whatever stands in them."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pod_scheduling.adapters.kubernetes.map_sights import SightRules, node_sight, pod_sight
from pod_scheduling.domain.maps.map_injection import InjectionRules, injection
from pod_scheduling.domain.maps.map_placement import DeviceUse
from pod_scheduling.ports.map_cluster import NodeSeen, PodBound, PodWaiting, Sight
from pod_scheduling.ports.pod_binding import NodeGone, PodGone
from reservation_core.adapters.kubernetes.api_server.object_watch import ObservedObject
from reservation_core.domain.pods.reviews import Operation, Patched, PodReview, Requester
from tests.examples import examples

RULES = SightRules()


def seen(thing: dict[str, Any], *, gone: bool = False) -> ObservedObject:
    return ObservedObject("ns", "p-0", "uid-0", thing, gone)


def admitted(text: str = "0=node1:0,1", *, by: str = "ann", **spec: Any) -> dict[str, Any]:
    pod = {
        "metadata": {"name": "p-0", "annotations": {"gpu-scheduling-map": text}},
        "spec": {"schedulerName": "gpu-scheduler", "containers": [{"name": "c", "image": "i"}], **spec},
    }
    verdict = injection(PodReview(Operation.CREATE, pod, requester=Requester(by)), InjectionRules())
    assert isinstance(verdict, Patched)
    return copy.deepcopy(dict(verdict.pod))


def bound(pod: dict[str, Any]) -> dict[str, Any]:
    return {**pod, "spec": {**pod["spec"], "nodeName": "w0"}}


def use_of(sight: Sight) -> DeviceUse | None:
    assert isinstance(sight, PodBound)
    return sight.burden.use


def test_a_pod_that_waits_is_bound_and_ends() -> None:
    waits = pod_sight(seen(admitted()), RULES)
    assert isinstance(waits, PodWaiting)
    assert (waits.mapped.refused, waits.gated, waits.told) == (None, False, None)
    on_node = pod_sight(seen(bound(admitted())), RULES)
    assert isinstance(on_node, PodBound)
    assert on_node.burden == waits.mapped.burden
    for phase in ("Succeeded", "Failed"):
        assert pod_sight(seen({**bound(admitted()), "status": {"phase": phase}}), RULES) == PodGone("uid-0")
    assert pod_sight(seen(admitted(), gone=True), RULES) == PodGone("uid-0")


def test_one_that_is_being_deleted_is_not_ours_before_it_is_bound_and_holds_its_cards_after() -> None:
    pod = admitted()
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert pod_sight(seen(pod), RULES) == PodGone("uid-0")
    assert use_of(pod_sight(seen(bound(pod)), RULES)) is not None


def test_who_takes_the_annotations_away_hides_no_cards() -> None:
    pod = bound(admitted())
    pod["metadata"]["annotations"] = {}
    found = use_of(pod_sight(seen(pod), RULES))
    assert found is not None
    assert found.devices == ("0", "1")


def of_set(pod: dict[str, Any], uid: str) -> dict[str, Any]:
    pod["metadata"]["ownerReferences"] = [{"kind": "StatefulSet", "uid": uid, "controller": True}]
    return pod


def test_pods_are_of_one_group_by_map_controller_and_who_asked_for_them() -> None:
    def group(pod: dict[str, Any]) -> str:
        use = use_of(pod_sight(seen(bound(pod)), RULES))
        assert use is not None
        return use.group

    same = [group(admitted()), group(admitted())]
    others = [
        group(admitted(by="bob")),
        group(admitted("0=node1:0,1 1=node1:0")),
        group(of_set(admitted(by="controller"), "a")),
        group(of_set(admitted(by="controller"), "b")),
        group(of_set(admitted(by="bob"), "a")),  # whoever says that a pod is somebody else's set's
        group(of_set(admitted(by="b', 'controller"), "a")),
    ]
    assert same[0] == same[1]
    assert len({same[0], *others}) == 7
    assert group(of_set(admitted(by="controller"), "a")) == others[2]


def test_what_any_container_sees_counts() -> None:
    pod = bound(admitted())
    pod["spec"]["initContainers"] = [{"name": "i", "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "3, 1"}]}]
    found = use_of(pod_sight(seen(pod), RULES))
    assert found is not None
    assert sorted(found.devices) == ["0", "1", "3"]


def test_pods_of_others_see_what_they_see_and_count_with_what_they_ask_for() -> None:
    other = bound(admitted())
    other["metadata"]["annotations"] = {}
    other["spec"]["schedulerName"] = "default-scheduler"
    other["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    sight = pod_sight(seen(other), RULES)
    assert isinstance(sight, PodBound)
    assert sight.burden.use is None
    assert sight.burden.requests == {"cpu": 2000, "pods": 1}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"metadata": {"ownerReferences": [{"controller": True, "uid": "rs"}]}}, False),
        ({"namespace": "elsewhere"}, False),
    ],
)
def test_who_shares_cards(changes: dict[str, Any], expected: bool) -> None:
    one = use_of(pod_sight(seen(bound(admitted())), RULES))
    pod = bound(admitted())
    pod["metadata"].update(changes.get("metadata", {}))
    other = use_of(pod_sight(ObservedObject(changes.get("namespace", "ns"), "p-0", "uid-1", pod), RULES))
    assert one is not None
    assert other is not None
    assert (one.group == other.group) is expected


def test_a_node() -> None:
    thing = {
        "metadata": {"labels": {"gpu-node-name": "node1"}},
        "spec": {"unschedulable": True, "taints": [{"key": "a", "effect": "NoSchedule"}]},
        "status": {
            "conditions": [{"type": "Ready", "status": "Unknown"}],
            "allocatable": {"cpu": "1500m", "memory": "1Gi", "x": "?"},
            "capacity": {"nvidia.com/gpu": "8"},
        },
    }
    sight = node_sight(seen(thing), RULES)
    assert isinstance(sight, NodeSeen)
    assert (sight.node.ready, sight.node.cordoned, sight.node.card_count) == (False, True, 8)
    assert sight.node.allocatable == {"cpu": 1500, "memory": 2**30}
    assert [str(taint) for taint in sight.node.taints] == ["a:NoSchedule"]
    assert node_sight(seen({}, gone=True), RULES) == NodeGone("p-0")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
PATHS = ["metadata", "spec", "status", "annotations", "labels", "containers", "initContainers", "env", "resources",
         "requests", "tolerations", "affinity", "conditions", "taints", "ports", "allocatable", "nodeName"]  # fmt: skip


def _replaced(thing: Any, name: str, value: Any) -> Any:
    if isinstance(thing, dict):
        return {key: value if key == name else _replaced(part, name, value) for key, part in thing.items()}
    return [_replaced(part, name, value) for part in thing] if isinstance(thing, list) else thing


@given(st.sampled_from(PATHS), JSON, st.booleans())
@examples(300)
def test_whatever_stands_somewhere_is_read_without_an_error(name: str, value: Any, on_node: bool) -> None:
    full = admitted(
        tolerations=[{"key": "a"}], affinity={"nodeAffinity": {}}, nodeSelector={"a": "b"}, schedulingGates=[]
    )
    full["status"] = {"conditions": [], "allocatable": {}, "containerStatuses": [{"name": "c", "resources": {}}]}
    full["spec"]["containers"][0].update(resources={"requests": {"cpu": 1}}, ports=[{"hostPort": 1}])
    full["spec"]["taints"] = []
    thing = _replaced(bound(full) if on_node else full, name, value)
    pod_sight(seen(thing), RULES)
    node_sight(seen(thing), RULES)


def test_a_pod_that_asked_for_gpus_has_some_card_nobody_says_which() -> None:
    pod = bound(admitted())
    pod["metadata"]["annotations"] = {}
    pod["spec"]["schedulerName"] = "default-scheduler"
    pod["spec"]["containers"] = [{"name": "m", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    found = use_of(pod_sight(seen(pod), RULES))
    assert found is not None
    assert found.devices == ("?",)


def test_of_a_pod_that_has_failed_a_container_may_still_run() -> None:
    running = {"phase": "Failed", "containerStatuses": [{"name": "m", "state": {"running": {}}}]}
    assert isinstance(pod_sight(seen({**bound(admitted()), "status": running}), RULES), PodBound)

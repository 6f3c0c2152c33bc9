"""Pods that use GPUs of our nodes without having asked us."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.adapters.kubernetes.jobs.foreign_pods import (
    ForeignRules,
    read_claimant,
    read_foreign,
    requested_gpus,
)
from reservation_core.adapters.kubernetes.nodes.gpu_claims import Claim, read_claim
from reservation_core.adapters.kubernetes.nodes.node_gpus import cards_of_devices, sliced_cards
from reservation_core.adapters.kubernetes.pods.built_pods import build_pod
from reservation_core.adapters.kubernetes.pods.gpu_attaching import GpuAttach
from reservation_core.domain.model import ForeignPod
from tests.unit.reservation_core.adapters.kubernetes.pods.specs import CASES, NOW

RULES = ForeignRules("gpu-dev")
PLUGIN = ForeignRules("gpu-dev", GpuAttach.DEVICE_PLUGIN)
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
    return requested_gpus(pod(*containers, spec=spec), RULES.resource_names)


def seen(
    pods: list[dict[str, Any]],
    rules: ForeignRules = RULES,
    claims: list[dict[str, Any]] = [],  # noqa: B006 -- nobody changes it
    slices: list[dict[str, Any]] = [],  # noqa: B006
) -> list[ForeignPod]:
    """What these objects come to."""
    found = [claimant for pod in pods if (claimant := read_claimant(pod, rules, NODES)) is not None]
    read = [claim for claim_object in claims if (claim := read_claim(claim_object, rules.device_classes)) is not None]
    return read_foreign(found, {claim.key: claim for claim in read}, cards_of_devices(slices), rules)


def test_a_foreign_gpu_user_is_seen() -> None:
    assert seen([pod(container("2"))]) == [ForeignPod("node1", "team/train", 2, None)]
    assert seen([pod(container("2"))], PLUGIN) == [ForeignPod("node1", "team/train", 2, None, counted=True)]


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
    assert seen([thing]) == []


def test_a_pod_that_has_failed_but_runs_still_is_seen() -> None:
    running = [{"name": "c", "state": {"running": {}}}]
    assert len(seen([pod(container("1"), phase="Failed", containerStatuses=running)])) == 1


@pytest.mark.parametrize("case", CASES)
def test_our_own_are_not_foreign_but_our_marks_elsewhere_are(case: str) -> None:
    spec, rules = CASES[case]
    ours = build_pod(spec, rules, NOW)
    ours["spec"] |= {"nodeName": "node2", "containers": [container("1")]}
    assert seen([ours]) == []
    ours["metadata"]["namespace"] = "team"
    assert [found.description for found in seen([ours])] == [f"team/{spec.name}"]
    ours["metadata"] |= {"namespace": "gpu-dev", "name": "renamed"}
    assert [found.description for found in seen([ours])] == ["gpu-dev/renamed"]
    # A copy of ours under another name asks the kubelet for nothing, and has our variables.
    ours["spec"]["containers"] = [container()]
    assert seen([ours]) == [ForeignPod("node2", "gpu-dev/renamed", 1, None)]
    assert seen([ours], PLUGIN) == []


def test_how_many_gpus_a_pod_asks_for() -> None:
    assert counted(container("1"), container(None, "2")) == 3
    assert counted(container("1", "2")) == 2
    assert counted(container("1"), initContainers=[container("4"), container("3")]) == 4
    assert counted(container("2"), initContainers=[container("1")]) == 2
    beside = container("1", restartPolicy="Always")
    assert counted(container("2"), initContainers=[beside]) == 3
    assert counted(container("1"), initContainers=[beside, container("3")]) == 4
    assert counted(container("1"), initContainers=[container("3"), beside]) == 3
    assert counted({"name": "c", "resources": {"limits": {"amd.com/gpu": 1, "cpu": "9"}}}) == 1
    assert counted({"name": "c", "resources": {"limits": {"intel.com/gpu": 1}}}) == 0


def claiming(*names: str, name: str = "train", node: str = "node1") -> dict[str, Any]:
    """A pod that asks for nothing but claims."""
    claims = [{"name": claim_name, "resourceClaimName": claim_name} for claim_name in names]
    return pod(container(), metadata={"name": name}, spec={"nodeName": node, "resourceClaims": claims})


def claim(name: str, *results: dict[str, Any] | str, requests: list[Any] | None = None) -> dict[str, Any]:
    """A claim of the namespace `team`; given `results`, NVIDIA's devices by their names, if there are any."""
    given = [
        {"request": "r", "driver": "gpu.nvidia.com", "pool": "node1", "device": result}
        if isinstance(result, str)
        else result
        for result in results
    ]
    status = {"allocation": {"devices": {"results": given}}} if given else {}
    return {
        "metadata": {"namespace": "team", "name": name},
        "spec": {"devices": {"requests": requests or []}},
        "status": status,
    }


def exactly(device_class: str, **more: Any) -> dict[str, Any]:
    return {"name": "r", "exactly": {"deviceClassName": device_class, **more}}


NIC = {"request": "r", "driver": "dra.net", "pool": "node1", "device": "eth1"}
SLICES = [
    {
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": "node1",
            "pool": {"name": "node1", "generation": 1},
            "devices": [
                *(
                    {
                        "name": f"gpu-{minor}",
                        "attributes": {
                            "uuid": {"string": f"GPU-{minor}a"},
                            "type": {"string": "gpu"},
                            "resource.kubernetes.io/pciBusID": {"string": f"0000:{bus}:00.0"},
                        },
                    }
                    for minor, bus in ((0, "c1"), (1, "41"), (2, "81"))
                ),
                {
                    "name": "mig-2-1",
                    "attributes": {
                        "uuid": {"string": "MIG-2b"},
                        "parentUUID": {"string": "GPU-2a"},
                        "type": {"string": "mig"},
                    },
                },
            ],
        }
    }
]


def test_a_claimed_card_that_a_slice_names_is_the_only_one_taken() -> None:
    assert [card.uuid for card in sliced_cards(SLICES)["node1"]] == ["GPU-1a", "GPU-2a", "GPU-0a"]
    given = claim("a", "gpu-0", NIC)
    assert seen([claiming("a")], RULES, [given], SLICES) == [ForeignPod("node1", "team/train", 1, (2,))]
    part = claim("a", "mig-2-1", "gpu-1")
    assert seen([claiming("a")], RULES, [part], SLICES) == [ForeignPod("node1", "team/train", 2, (0, 1))]


def test_a_claimed_card_that_no_slice_names_may_be_any() -> None:
    given = claim("a", "gpu-0", "gpu-7")
    assert seen([claiming("a")], RULES, [given], SLICES) == [
        ForeignPod("node1", "team/train", 1, (2,)),
        ForeignPod("node1", "team/train", 1, None),
    ]
    assert seen([claiming("a", node="node2")], RULES, [claim("a", "gpu-0")], SLICES) == [
        ForeignPod("node2", "team/train", 1, None)
    ]
    # Where the kubelet picks the cards of ours, their numbers are not the slices'.
    assert seen([claiming("a")], PLUGIN, [given], SLICES) == [ForeignPod("node1", "team/train", 2, None, counted=True)]


def test_what_is_no_gpu_closes_nothing() -> None:
    assert seen([claiming("a")], RULES, [claim("a", NIC)], SLICES) == []
    assert seen([claiming("a")], RULES, [claim("a", requests=[exactly("rdma.example.org", count=8)])]) == []
    watched = {"driver": "gpu.nvidia.com", "pool": "node1", "device": "gpu-1", "adminAccess": True}
    assert seen([claiming("a")], RULES, [claim("a", watched)], SLICES) == []
    assert seen([claiming("a")], RULES, [claim("a", requests=[exactly("gpu.nvidia.com", adminAccess=True)])]) == []


@pytest.mark.parametrize(
    ("requests", "count"),
    [
        ([exactly("gpu.nvidia.com")], 1),
        ([exactly("gpu.nvidia.com", count=3), exactly("dra.net"), exactly("mig.nvidia.com")], 4),
        ([{"name": "r", "deviceClassName": "gpu.amd.com", "count": 2}], 2),
        ([{"name": "r", "firstAvailable": [{"deviceClassName": "gpu.amd.com", "count": 4}, {"count": 9}]}], 4),
        ([{"name": "r", "firstAvailable": [{"deviceClassName": "dra.net"}]}], 0),
        ([exactly("gpu.nvidia.com", allocationMode="All")], 1),
    ],
)
def test_what_a_claim_asks_for_counts_until_it_is_given_something(requests: list[Any], count: int) -> None:
    assert read_claim(claim("a", requests=requests), RULES.device_classes) == Claim(("team", "a"), (), count)
    found = seen([claiming("a")], RULES, [claim("a", requests=requests)])
    assert [foreign_pod.gpu_count for foreign_pod in found] == [count] * (count > 0)
    assert seen([claiming("a")], RULES, [claim("a", NIC, requests=requests)]) == []


def test_a_claim_that_can_not_be_read_counts_as_a_gpu() -> None:
    one = [ForeignPod("node1", "team/train", 1, None)]
    assert seen([claiming("a")]) == one
    assert seen([claiming("a")], RULES, [{"metadata": {"namespace": "team", "name": "a"}, "spec": {}}]) == one
    assert seen([claiming("a")], RULES, [{**claim("a", NIC), "metadata": {"namespace": "other", "name": "a"}}]) == one
    from_template = pod(container(), spec={"resourceClaims": [{"name": "a", "resourceClaimTemplateName": "t"}]})
    assert seen([from_template]) == one
    from_template["status"]["resourceClaimStatuses"] = [{"name": "a", "resourceClaimName": "train-a-x7k2"}]
    assert seen([from_template], RULES, [claim("train-a-x7k2", NIC)]) == []
    from_template["status"]["resourceClaimStatuses"] = [{"name": "a"}]
    assert seen([from_template]) == []


def test_a_claim_that_pods_share_counts_once_on_a_node() -> None:
    pods = [claiming("a", name=name) for name in ("one", "two")]
    assert sum(foreign_pod.gpu_count for foreign_pod in seen(pods, PLUGIN, [claim("a", "gpu-0", "gpu-1")], SLICES)) == 2
    pods.append(pod(container("1"), spec={"resourceClaims": [{"name": "a", "resourceClaimName": "a"}]}))
    assert sum(foreign_pod.gpu_count for foreign_pod in seen(pods, PLUGIN, [claim("a", "gpu-0", "gpu-1")], SLICES)) == 3


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(JSON, JSON, JSON, JSON)
def test_nothing_that_a_pod_holds_raises(metadata: Any, containers: Any, resources: Any, claims: Any) -> None:
    spec = {"nodeName": "node1", "initContainers": containers, "resourceClaims": claims}
    listed = [{"resources": resources}, {"resources": {"limits": {"nvidia.com/gpu": resources}}}]
    status = {"resourceClaimStatuses": claims}
    thing = {"metadata": metadata, "spec": {**spec, "containers": listed}, "status": metadata}
    things = [thing, {"spec": resources}, {**thing, "status": status}, claiming("a")]
    assert all(found.gpu_count > 0 for found in seen(things))
    assert all(found.gpu_count > 0 for found in seen([{**thing, "spec": {**spec, "resourceClaims": [metadata]}}]))


@given(JSON, JSON)
def test_nothing_that_a_claim_holds_raises(what: Any, more: Any) -> None:
    allocation = {"allocation": {"devices": {"results": what}}}
    for status in (what, {"allocation": what}, {"allocation": {"devices": what}}, allocation):
        for devices in (more, {"requests": more}, {"requests": [more]}, {"requests": [{"firstAvailable": more}]}):
            thing = {"metadata": {"namespace": "team", "name": "a"}, "spec": {"devices": devices}, "status": status}
            assert all(found.gpu_count > 0 for found in seen([claiming("a")], RULES, [thing]))


def mapped(*devices: str, **more: Any) -> dict[str, Any]:
    """As the webhook leaves a pod with a map: without a request, and with a variable in each container."""
    seeing = [container(env=[{"name": "CUDA_VISIBLE_DEVICES", "value": device}]) for device in devices]
    return pod(*seeing, spec={"schedulerName": "gpu-scheduler"}, **more)


def test_a_pod_with_a_scheduling_map_uses_exactly_the_cards_that_it_sees() -> None:
    assert seen([mapped("0,2", "0,2")]) == [ForeignPod("node1", "team/train", 2, (0, 2))]
    marked = pod(
        container(env=[{"name": "CUDA_VISIBLE_DEVICES", "value": "3"}]),
        metadata={"annotations": {"gpu-dev/map-digest": "sha256:0"}},
    )
    assert seen([marked]) == [ForeignPod("node1", "team/train", 1, (3,))]
    assert seen([mapped("")]) == []
    assert seen([mapped("1", phase="Succeeded")]) == []
    assert seen([mapped("1")], PLUGIN) == [ForeignPod("node1", "team/train", 1, None, counted=True)]


def test_cards_that_a_map_names_by_uuid_or_that_nobody_can_read_may_be_any() -> None:
    uuid = "GPU-6cd4b1a6-2b7d-4b0b-9ac2-000000000001"
    assert seen([mapped(uuid)]) == [ForeignPod("node1", "team/train", 1, None)]
    secret = pod(
        container(env=[{"name": "CUDA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {}}}]),
        spec={"schedulerName": "gpu-scheduler"},
    )
    assert seen([secret]) == [ForeignPod("node1", "team/train", 1, None)]


def test_a_pod_without_a_map_that_sets_the_variable_is_no_user_of_cards() -> None:
    assert seen([pod(container(env=[{"name": "CUDA_VISIBLE_DEVICES", "value": "0"}]))]) == []

"""Nodes and cards as they are read from Node objects."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.adapters.kubernetes.nodes.node_gpus import Card, annotated_cards, format_cards
from reservation_core.adapters.kubernetes.nodes.node_reports import NodeRules, read_nodes
from reservation_core.adapters.kubernetes.pods.pod_defaults import Toleration
from reservation_core.domain.cards.gpu_types import GPU_TYPE
from reservation_core.domain.cards.node_reports import GpuReport
from reservation_core.domain.model import GpuCondition
from tests.unit.reservation_core.adapters.kubernetes.nodes.read_nodes import (
    CARDS,
    DEVICE_PLUGIN,
    ENV,
    GIB,
    LABELS,
    UUID,
    indices,
    node,
    read,
)


def test_a_node_with_labels_alone() -> None:
    report = read(node(labels={**LABELS, "topology.kubernetes.io/zone": "z1", "gpu-node-name": "node-one"}))
    assert report.gpus == tuple(GpuReport(index, "h100", None, 81_559 * 2**20) for index in (0, 1))
    assert (report.ready, report.schedulable, report.detail) == (True, True, None)
    assert (report.zone, report.logical_name, report.taints) == ("z1", "node-one", ())
    assert dict(report.labels)["gpu-node-name"] == "node-one"


def test_nodes_come_in_the_order_of_their_names() -> None:
    assert [report.name for report in read_nodes([node("b"), node("a")], [], ENV)] == ["a", "b"]


def test_cards_that_the_agent_has_written() -> None:
    report = read(node(cards=CARDS), UUID)
    assert [(gpu.index, gpu.uuid, gpu.memory_bytes) for gpu in report.gpus] == [
        (0, "GPU-0", 80 * GIB),
        (1, "GPU-1", 80 * GIB),
    ]
    assert report.schedulable


def test_by_uuid_a_node_without_uuids_gets_nothing_and_says_what_to_run() -> None:
    report = read(node(), UUID)
    assert not report.schedulable
    assert report.detail is not None
    assert "python -m availability_updater --node-agent" in report.detail
    assert read(node(), ENV).schedulable
    assert read(node(), DEVICE_PLUGIN).schedulable


def test_by_uuid_a_card_without_one_is_not_to_be_had_beside_others_that_are() -> None:
    report = read(node(gpus="3", cards=CARDS), UUID)
    assert [gpu.condition for gpu in report.gpus] == [GpuCondition.USABLE, GpuCondition.USABLE, GpuCondition.LOST]
    assert report.schedulable


@pytest.mark.parametrize(
    ("gpus", "wanted"), [("4", [0, 1, 2, 3]), ("2", [0, 1]), ("1", [0]), ("0", []), (0, []), ("x", [])]
)
def test_the_kubelets_count_counts(gpus: object, wanted: list[int]) -> None:
    for rules in (ENV, UUID, DEVICE_PLUGIN):
        assert indices(read(node(gpus=gpus, cards=CARDS), rules)) == wanted


def test_without_the_kubelets_word_the_known_cards_count_where_it_does_not_hand_them_out() -> None:
    assert indices(read(node(gpus=None, cards=CARDS), ENV)) == [0, 1]
    assert indices(read(node(gpus=None, cards=CARDS), UUID)) == [0, 1]
    report = read(node(gpus=None, cards=CARDS), DEVICE_PLUGIN)
    assert report.gpus == ()
    assert report.detail is not None
    assert "device plugin" in report.detail


def test_a_card_that_is_missing_in_the_middle_keeps_the_indices_of_the_others() -> None:
    cards = (CARDS[0], Card(2, "GPU-2"))
    assert indices(read(node(gpus="2", cards=cards))) == [0, 2]
    assert indices(read(node(gpus="3", cards=cards))) == [0, 1, 2]


def test_a_card_that_its_driver_has_lost_is_lost() -> None:
    report = read(node(cards=(CARDS[0], Card(1, "GPU-1", lost=True))))
    assert [gpu.condition for gpu in report.gpus] == [GpuCondition.USABLE, GpuCondition.LOST]


def test_unhealthy_cards_of_a_device_plugin_are_not_given_out() -> None:
    thing = node(gpus="4", allocatable={"nvidia.com/gpu": "3"})
    assert [gpu.condition.value for gpu in read(thing, DEVICE_PLUGIN).gpus] == ["usable"] * 3 + ["lost"]
    assert {gpu.condition for gpu in read(thing, ENV).gpus} == {GpuCondition.USABLE}


def test_a_node_says_by_which_resource_its_cards_are_asked_for() -> None:
    assert read(node(), DEVICE_PLUGIN).gpu_resource == "nvidia.com/gpu"
    assert read(node(gpus=None), DEVICE_PLUGIN).gpu_resource is None
    assert read(node(gpus="0"), DEVICE_PLUGIN).gpu_resource is None
    thing = node(gpus="0")
    thing["status"]["capacity"]["amd.com/gpu"] = "8"
    assert read(thing, DEVICE_PLUGIN).gpu_resource == "amd.com/gpu"
    assert len(read(thing, DEVICE_PLUGIN).gpus) == 8


def test_of_a_node_with_cards_of_two_resources_a_kubelet_is_asked_for_one() -> None:
    thing = node()
    thing["status"]["capacity"]["amd.com/gpu"] = "8"
    report = read(thing, DEVICE_PLUGIN)
    assert (report.gpu_resource, len(report.gpus), report.schedulable) == ("nvidia.com/gpu", 2, True)
    assert report.detail == "Its GPUs of amd.com/gpu are not given out, only the GPUs of nvidia.com/gpu."
    assert len(read(thing, ENV).gpus) == 10


def test_other_resources_can_be_counted() -> None:
    thing = node(gpus=None, labels={"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM", "amd.com/gpu.vram": "192G"})
    thing["status"]["capacity"]["amd.com/gpu"] = "8"
    report = read(thing)
    assert [(gpu.gpu_type, gpu.memory_bytes) for gpu in report.gpus] == [("mi300x", 192 * GIB)] * 8


@pytest.mark.parametrize(
    ("labels", "types", "wanted"),
    [
        (LABELS, {}, "h100"),
        (LABELS, {"nvidia-h100-80gb-hbm3": "big"}, "big"),
        (LABELS, {"NVIDIA H100 80GB HBM3": "big"}, "big"),
        (LABELS, {"nvidia-h100-80gb-hbm3": "Not A Type"}, "h100"),
        ({"gpu-dev/gpu-type": "a100-80gb"}, {}, "a100-80gb"),
        ({**LABELS, "gpu-dev/gpu-type": "t4"}, {}, "h100"),
        ({}, {}, "unknown"),
        ({"nvidia.com/gpu.product": ""}, {}, "unknown"),
    ],
)
def test_types(labels: dict[str, str], types: dict[str, str], wanted: str) -> None:
    report = read(node(labels=labels), NodeRules(types=types))
    assert {gpu.gpu_type for gpu in report.gpus} == {wanted}
    assert (wanted == "unknown") == ("gpu-dev/gpu-type" in (report.detail or ""))


def test_without_a_label_a_cards_own_product_is_its_type_and_always_where_they_differ() -> None:
    assert {gpu.gpu_type for gpu in read(node(labels={}, cards=CARDS)).gpus} == {"h100"}
    mixed = (CARDS[0], Card(1, "GPU-1", None, "Tesla T4"))
    assert [gpu.gpu_type for gpu in read(node(cards=mixed)).gpus] == ["h100", "t4"]


@pytest.mark.parametrize(
    ("ready", "word"),
    [
        (
            {"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-03-01T12:00:00Z"},
            "since 2026-03-01T12:00:00Z",
        ),
        ({"type": "Ready", "status": "False", "message": "no network"}, "not ready: no network."),
        ({"type": "MemoryPressure", "status": "False"}, "not reported yet"),
    ],
)
def test_a_node_that_is_not_ready_says_why(ready: dict[str, Any], word: str) -> None:
    report = read(node(ready=ready))
    assert not report.ready
    assert word in (report.detail or "")
    assert indices(report) == [0, 1], "its cards are still its cards"


def test_a_cordoned_node_is_closed() -> None:
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    report = read(node(unschedulable=True, taints=[taint]))
    assert (report.ready, report.schedulable) == (True, False)
    assert report.detail == "It is cordoned; `kubectl uncordon node1` gives it back."
    assert report.taints == ("node.kubernetes.io/unschedulable:NoSchedule",)


@pytest.mark.parametrize(
    ("taint", "open_to_us"),
    [
        ({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}, True),
        ({"key": "dedicated", "value": "web", "effect": "NoSchedule"}, False),
        ({"key": "dedicated", "value": "web", "effect": "NoExecute"}, False),
        ({"key": "dedicated", "value": "web", "effect": "PreferNoSchedule"}, True),
        ({"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}, True),
        ({"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}, False),
        ({"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}, True),
    ],
)
def test_a_taint_that_our_pods_do_not_tolerate_closes_a_node(taint: dict[str, str], open_to_us: bool) -> None:
    rules = NodeRules(tolerations=(*ENV.tolerations, Toleration(key="dedicated", value="gpu")))
    report = read(node(taints=[taint]), rules)
    assert report.schedulable is open_to_us
    if not open_to_us:
        assert taint["key"] in (report.detail or "")


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "{}",
        "[1]",
        '[{"index":0,"uuid":"all"}]',
        '[{"index":0,"uuid":"GPU-1,all"}]',
        '[{"index":-1,"uuid":"GPU-1"}]',
        '[{"index":true,"uuid":"GPU-1"}]',
        '[{"index":0,"uuid":"GPU-1"},{"index":0,"uuid":"GPU-2"}]',
        '[{"index":0,"uuid":"GPU-1"},{"index":1,"uuid":"GPU-1"}]',
        '[{"index":0,"uuid":"GPU-1","memory_bytes":"80"}]',
        '[{"index":0,"uuid":"GPU-1","product":7}]',
        '[{"index":0,"uuid":"GPU-1","lost":1}]',
        '[{"index":0,"uuid":"GPU-1","more":1}]',
        "[" * 100_000,
        "[" + ",".join(["{}"] * 2000) + "]",
    ],
)
def test_a_bad_annotation_is_its_nodes_detail_and_nobody_elses(text: str) -> None:
    bad, good = read_nodes([node("a", cards=text), node("b", cards=CARDS)], [], UUID)
    assert "gpu-dev/gpus can't be used" in (bad.detail or "")
    assert not bad.schedulable
    assert indices(bad) == [0, 1]
    assert (good.schedulable, good.detail) == (True, None)


@given(st.text(max_size=40) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_whatever_an_annotation_holds_nothing_is_raised(text: str) -> None:
    for rules in (ENV, UUID):
        assert indices(read(node(cards=text), rules)) == [0, 1]


@given(st.lists(st.integers(0, 1023), unique=True, max_size=8), st.randoms(use_true_random=False))
def test_what_the_agent_writes_is_read_back(numbers: list[int], random: Any) -> None:
    cards = [Card(n, f"GPU-{n}", n or None, None if n % 2 else "NVIDIA L4", n % 3 == 0) for n in numbers]
    ordered = tuple(sorted(cards, key=lambda card: card.index))
    text = format_cards(cards)
    random.shuffle(cards)
    assert format_cards(cards) == text
    assert annotated_cards({"metadata": {"annotations": {"gpu-dev/gpus": text}}}) == ordered


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(
    JSON,
    JSON,
    st.fixed_dictionaries({}, optional=dict.fromkeys(("capacity", "conditions", "allocatable"), JSON)),
    JSON,
    JSON,
)
def test_nothing_that_a_node_or_slice_holds_raises(
    labels: Any, spec: Any, status: Any, devices: Any, attributes: Any
) -> None:
    thing = {"metadata": {"name": "n", "labels": labels, "annotations": labels}, "spec": spec, "status": status}
    sliced = [
        {"spec": {"nodeName": "n", "devices": devices, "pool": attributes}},
        {"spec": {"nodeName": "n", "devices": [{"basic": {"attributes": attributes, "capacity": attributes}}]}},
        {"spec": spec},
    ]
    for rules in (ENV, UUID, DEVICE_PLUGIN):
        report = read(thing, rules, *sliced)
        assert all(GPU_TYPE.fullmatch(gpu.gpu_type) for gpu in report.gpus)


def test_what_pods_can_have_of_a_node_is_what_is_allocatable() -> None:
    report = read(node(allocatable={"cpu": "63500m", "memory": "515Gi"}))
    assert (report.cpu_milli, report.memory_bytes) == (63_500, 515 * 2**30)
    for allocatable in ({}, {"cpu": "many", "memory": "-1"}):
        odd = read(node(allocatable=allocatable))
        assert (odd.cpu_milli, odd.memory_bytes) == (None, None)

"""Cards as they are read from ResourceSlice objects."""

from typing import Any

import pytest

from reservation_core.domain.cards.node_reports import GpuReport
from tests.unit.reservation_core.adapters.kubernetes.nodes.read_nodes import CARDS, GIB, UUID, node, read


def sliced(shape: str, devices: list[dict[str, Any]], generation: int = 1, **spec: Any) -> dict[str, Any]:
    """A ResourceSlice of a node in the shape of one version of the API."""

    def device(number: int, attributes: dict[str, Any]) -> dict[str, Any]:
        typed = {key: {"int" if isinstance(value, int) else "string": value} for key, value in attributes.items()}
        memory: Any = "80Gi" if shape == "v1alpha3" else {"value": "80Gi"}
        body = {"attributes": typed, "capacity": {"memory": memory}}
        return {"name": f"gpu-{number}", **(body if shape in ("v1", "v1beta2") else {"basic": body})}

    return {
        "apiVersion": f"resource.k8s.io/{shape}",
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": "node1",
            "pool": {"name": "node1", "generation": generation, "resourceSliceCount": 1},
            "devices": [device(number, attributes) for number, attributes in enumerate(devices)],
            **spec,
        },
    }


DEVICES = [
    {"type": "gpu", "uuid": "GPU-b", "productName": "NVIDIA H200", "index": 1},
    {"type": "gpu", "uuid": "GPU-a", "productName": "NVIDIA H200", "index": 0},
]


@pytest.mark.parametrize("shape", ["v1alpha3", "v1beta1", "v1beta2", "v1"])
def test_cards_from_resource_slices(shape: str) -> None:
    report = read(node(gpus=None, labels={}), UUID, sliced(shape, DEVICES))
    assert report.gpus == (GpuReport(0, "h200", "GPU-a", 80 * GIB), GpuReport(1, "h200", "GPU-b", 80 * GIB))
    assert report.schedulable


def test_slices_go_before_the_annotation() -> None:
    report = read(node(cards=CARDS), UUID, sliced("v1", DEVICES))
    assert [gpu.uuid for gpu in report.gpus] == ["GPU-a", "GPU-b"]
    assert [gpu.uuid for gpu in read(node("node2", cards=CARDS), UUID, sliced("v1", DEVICES)).gpus] == [
        "GPU-0",
        "GPU-1",
    ]


@pytest.mark.parametrize(
    ("devices", "wanted"),
    [
        (
            [
                {"uuid": "GPU-a", "resource.kubernetes.io/pciBusID": "0000:C1:00.0", "minor": 0},
                {"uuid": "GPU-b", "resource.kubernetes.io/pciBusID": "0000:41:00.0", "minor": 1},
            ],
            ["GPU-b", "GPU-a"],
        ),
        ([{"uuid": "GPU-a", "minor": 10}, {"uuid": "GPU-b", "minor": 9}], ["GPU-b", "GPU-a"]),
        ([{"uuid": "GPU-z"}, {"uuid": "GPU-b"}], ["GPU-z", "GPU-b"]),
    ],
)
def test_cards_without_an_index_are_in_the_order_of_their_bus_ids(
    devices: list[dict[str, Any]], wanted: list[str]
) -> None:
    assert [gpu.uuid for gpu in read(node(), UUID, sliced("v1", devices)).gpus] == wanted


def test_only_whole_cards_with_a_uuid_of_the_newest_generation_count() -> None:
    mixed = [
        {"type": "gpu", "uuid": "GPU-a", "index": 0},
        {"type": "mig", "uuid": "MIG-a", "index": 1},
        {"type": "gpu", "uuid": "all", "index": 2},
        {"type": "nic"},
    ]
    old = sliced("v1", [{"uuid": "GPU-old", "index": 0}], generation=1)
    report = read(node(gpus=None), UUID, old, sliced("v1", mixed, generation=2))
    assert [gpu.uuid for gpu in report.gpus] == ["GPU-a"]

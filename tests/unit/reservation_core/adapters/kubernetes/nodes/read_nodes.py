"""Nodes as the API server has them, and what is read from them."""

from typing import Any

from reservation_core.adapters.kubernetes.nodes.node_gpus import Card, format_cards
from reservation_core.adapters.kubernetes.nodes.node_reports import NodeRules, read_nodes
from reservation_core.adapters.kubernetes.pods.gpu_attaching import GpuAttach
from reservation_core.domain.cards.node_reports import NodeReport

GIB = 2**30
ENV, UUID, DEVICE_PLUGIN = (
    NodeRules(attach=attach) for attach in (GpuAttach.ENV, GpuAttach.UUID, GpuAttach.DEVICE_PLUGIN)
)
READY = {"type": "Ready", "status": "True"}
LABELS = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}
CARDS = tuple(Card(index, f"GPU-{index}", 80 * GIB, "NVIDIA H100 80GB HBM3") for index in range(2))


def node(
    name: str = "node1",
    gpus: object = "2",
    labels: dict[str, str] | None = None,
    cards: str | tuple[Card, ...] | None = None,
    ready: dict[str, Any] = READY,
    **more: Any,
) -> dict[str, Any]:
    """A Node object; `gpus` is its capacity, None where it does not speak of GPUs."""
    annotations = {} if cards is None else {"gpu-dev/gpus": cards if isinstance(cards, str) else format_cards(cards)}
    capacity = {"cpu": "64"} if gpus is None else {"cpu": "64", "nvidia.com/gpu": gpus}
    return {
        "metadata": {"name": name, "labels": LABELS if labels is None else labels, "annotations": annotations},
        "spec": {key: value for key, value in more.items() if key in ("taints", "unschedulable")},
        "status": {"capacity": capacity, "conditions": [ready], "allocatable": more.get("allocatable", capacity)},
    }


def read(thing: dict[str, Any], rules: NodeRules = ENV, *slices: dict[str, Any]) -> NodeReport:
    (report,) = read_nodes([thing], slices, rules)
    return report


def indices(report: NodeReport) -> list[int]:
    return [gpu.index for gpu in report.gpus]

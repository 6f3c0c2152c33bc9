"""The wire of what administrators say about nodes, and of pods there that nobody knows."""

from typing import Annotated

from pydantic import Field

from reservation_core.contracts.base import Prose, Time, Wire
from reservation_core.domain.model import GpuState


class NodeFence(Wire):
    """An administrator's word that a node is without power, and why if they like."""

    reason: Annotated[Prose, Field(min_length=1, max_length=1000)] | None = None


class NodeCordon(Wire):
    """An administrator's word that nothing new is to be placed on a node, and why if they like."""

    reason: Annotated[Prose, Field(min_length=1, max_length=200)] | None = None


class UnknownPodOut(Wire):
    """A pod with our marks that no reservation accounts for.

    The GPUs that it says it holds are not given out while it is there; null: it does not say, or it has finished.
    """

    name: str
    node: str | None
    gpu_indices: list[int] | None
    detail: str
    first_seen_at: Time
    end_requested_at: Time | None
    end_requested_by: str | None


class Holder(Wire):
    """The holder of a GPU. By the operator's choice (GPU_DEV_HOLDERS), ids and names of others are null."""

    id: str | None
    user: str | None
    yours: bool


class GpuOut(Wire):
    """One card."""

    node: str
    index: int
    uuid: str | None
    gpu_type: str
    memory_bytes: int | None
    state: GpuState
    holder: Holder | None
    free_at: Time | None


class NodeOut(Wire):
    """One node."""

    name: str
    ready: bool
    schedulable: bool
    detail: str | None
    gpu_types: list[str]
    gpus: int
    free: int
    last_seen_at: Time
    labels: dict[str, str]
    zone: str | None = None
    logical_name: str | None = None
    taints: list[str] = Field(default=[])
    fenced_at: Time | None = None
    fenced_by: str | None = None
    cordoned_at: Time | None = None
    cordoned_by: str | None = None
    cordon_reason: str | None = None
    gpu_links: Annotated[
        list[list[str]] | None,
        Field(
            description="How its cards are joined, by index, in the words of `nvidia-smi topo -m`; null: nobody says.",
            examples=[[["X", "NV18"], ["NV18", "X"]]],
        ),
    ] = None

"""What a cluster reports of its nodes and their GPUs."""

from dataclasses import dataclass

from reservation_core.domain.cards.link_words import Links
from reservation_core.domain.model import GpuCondition


@dataclass(frozen=True, slots=True)
class GpuReport:
    """One GPU as the cluster reports it."""

    index: int
    gpu_type: str
    uuid: str | None
    memory_bytes: int | None
    condition: GpuCondition = GpuCondition.USABLE


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One node as the cluster reports it; `detail` says why it is not ready or not schedulable.

    `logical_name` is the administrators' name, if it differs from `name`; `taints` are `key=value:effect`.
    `gpu_resource` as in AllocatedGpu. `links` say how its GPUs are linked, if known. `cpu_milli` and `memory_bytes` are
    what pods can have of it.
    """

    name: str
    ready: bool
    schedulable: bool
    gpus: tuple[GpuReport, ...]
    labels: tuple[tuple[str, str], ...] = ()
    detail: str | None = None
    zone: str | None = None
    logical_name: str | None = None
    taints: tuple[str, ...] = ()
    gpu_resource: str | None = None
    links: Links | None = None
    cpu_milli: int | None = None
    memory_bytes: int | None = None

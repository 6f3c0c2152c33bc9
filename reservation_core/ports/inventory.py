"""Nodes and GPUs, written as the cluster reports them and read with their holders."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from reservation_core.domain.model import ForeignPod, GpuState, NodeReport


@dataclass(frozen=True, slots=True)
class GpuView:
    """One card as readers see it."""

    node: str
    index: int
    uuid: str | None
    gpu_type: str
    memory_bytes: int | None
    state: GpuState
    holder_id: str | None
    holder_user: str | None
    holder_user_id: int | None
    free_at: datetime | None


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node as readers see it."""

    name: str
    ready: bool
    schedulable: bool
    detail: str | None
    gpu_types: tuple[str, ...]
    gpus: int
    free: int
    last_seen_at: datetime
    removed_at: datetime | None
    labels: dict[str, str]


class Inventory(Protocol):
    """Nodes and GPUs as the cluster reported them."""

    async def update(
        self, nodes: Sequence[NodeReport], foreign: Sequence[ForeignPod], now: datetime
    ) -> list[dict[str, Any]]:
        """Make the tables say what the cluster says; returns what changed (one dict a change)."""
        ...

    async def gpus(self, *, after: tuple[str, int] | None, limit: int) -> list[GpuView]:
        """By node name and index."""
        ...

    async def nodes(self, *, after: str | None, limit: int) -> list[NodeView]:
        """By name."""
        ...

    async def gpu_counts(self) -> list[tuple[str, GpuState, int]]:
        """(gpu_type, state, count), for metrics."""
        ...

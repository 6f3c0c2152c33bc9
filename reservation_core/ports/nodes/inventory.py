"""Nodes and GPUs, written as the cluster reports them and read with their holders."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from reservation_core.domain.cards.link_words import Links
from reservation_core.domain.model import ForeignPod, GpuState, NodeReport
from reservation_core.ports.nodes.cards_now import NodeNow


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
    """One node as readers see it; `detail` says all there is to say about why it gets nothing new."""

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
    zone: str | None = None
    logical_name: str | None = None
    taints: tuple[str, ...] = ()
    fenced_at: datetime | None = None
    fenced_by: str | None = None
    links: Links | None = None
    cordon: "Cordon | None" = None


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """What decides whether a node may be fenced, or cordoned."""

    name: str
    ready: bool
    last_seen_at: datetime
    fenced_by: str | None
    cordoned_by: str | None = None


@dataclass(frozen=True, slots=True)
class Cordon:
    """An administrator's word that nothing new is to be placed on a node; `reason` is why if they said so."""

    at: datetime
    by: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class Fence:
    """An administrator's word that a node is without power; `by` gave it, `reason` is why if they said so."""

    node: str
    by: str
    reason: str | None


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

    async def node(self, name: str) -> NodeView | None:
        """One node, also when it was removed."""
        ...

    async def lock_node(self, name: str) -> NodeRecord | None:
        """Read one node and keep others from changing it until the transaction ends."""
        ...

    async def fence(self, name: str, by: str, reason: str | None, now: datetime) -> None:
        """Write down that the node is without power, and tell the planner."""
        ...

    async def unfence(self, name: str) -> None:
        """Take the word back, and tell the planner."""
        ...

    async def cordon(self, name: str, cordon: Cordon) -> None:
        """Write down that nothing new is to be placed on the node, and tell the planner."""
        ...

    async def uncordon(self, name: str) -> None:
        """Take that back, and tell the planner."""
        ...

    async def without_power(self, names: Sequence[str]) -> dict[str, Fence]:
        """Which of these nodes are fenced and don't answer: there the fence stands for the node's own word."""
        ...

    async def cut_off(self) -> dict[str, Fence]:
        """Reservations that hold cards of a node which is fenced and does not answer, by id."""
        ...

    async def nodes_now(self, soon: timedelta, before: Mapping[str, NodeNow]) -> list[NodeNow]:
        """Every node by name with the cards that `gpus` shows, and who has each next where that begins within `soon`.

        Nodes that are as in `before` come back as the very objects that are there.
        """
        ...

    async def gpu_counts(self) -> list[tuple[str, GpuState, int]]:
        """(gpu_type, state, count), for metrics."""
        ...

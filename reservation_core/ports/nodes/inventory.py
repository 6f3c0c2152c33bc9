"""Nodes and GPUs with their holders."""

from dataclasses import dataclass
from datetime import datetime

from reservation_core.domain.cards.link_words import Links
from reservation_core.domain.request_terms import UNSAID, Share
from reservation_core.domain.statuses import GpuState


@dataclass(frozen=True, slots=True)
class GpuView:
    """One GPU as readers see it. `taken_at`: when it is taken, if it is free and that is soon."""

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
    health: "GpuHealthView | None" = None
    taken_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class GpuHealthView:
    """Since when and why a GPU is quarantined, and since when and why it is slow."""

    quarantined_at: datetime | None
    quarantined_by: str | None
    quarantine_reason: str | None
    slow_since: datetime | None
    slow_reason: str | None


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node as readers see it; `detail` says why it gets nothing new. Of its `free` GPUs some are `taken_soon`.

    `has_free` of what it `has` no job has now. That is for jobs with GPUs; `keeps` is for jobs without.
    """

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
    quarantined: tuple[int, ...] = ()
    has: Share = UNSAID
    has_free: Share = UNSAID
    keeps: Share = UNSAID
    keeps_free: Share = UNSAID
    taken_soon: int = 0


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """What decides whether a node may be fenced or cordoned."""

    name: str
    ready: bool
    last_seen_at: datetime
    fenced_by: str | None
    cordoned_by: str | None = None
    cordon_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Cordon:
    """An administrator's order to place nothing new on a node, with an optional reason."""

    at: datetime
    by: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class Fence:
    """An administrator's statement that a node has no power, with an optional reason."""

    node: str
    by: str
    reason: str | None

"""Every GPU with its current holder and the next one."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from reservation_core.domain.statuses import GpuState, ReservationKind

SOON = timedelta(hours=1)
"""A free GPU that a promised job, a booking or a maintenance window takes within this time is taken soon."""


@dataclass(frozen=True, slots=True)
class GpuHold:
    """A reservation that has a GPU in [starts_at, ends_at), and longer while its pod ends or exists."""

    id: str
    kind: ReservationKind
    user_id: int
    user: str
    starts_at: datetime
    ends_at: datetime


@dataclass(frozen=True, slots=True)
class GpuNow:
    """One GPU. `follower` has it next, if that is soon."""

    node: str
    index: int
    uuid: str | None
    gpu_type: str
    memory_bytes: int | None
    state: GpuState
    holder: GpuHold | None
    follower: GpuHold | None


@dataclass(frozen=True, slots=True)
class NodeNow:
    """One node with its GPUs by index. `available`: it gets new work; `detail` says why not.

    `rack` is the value of its rack label. `source` is the stored form it was read from.
    """

    name: str
    available: bool
    detail: str | None
    cards: tuple[GpuNow, ...]
    rack: str | None = None
    source: Sequence[object] = field(default=(), repr=False, compare=False)

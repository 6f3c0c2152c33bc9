"""Every card at this moment, and soon: who has it, and who has it next."""

from dataclasses import dataclass, field
from datetime import datetime

from reservation_core.domain.model import GpuState, ReservationKind


@dataclass(frozen=True, slots=True)
class CardHold:
    """A reservation that has a card in [starts_at, ends_at), or beyond that while its pod is there."""

    id: str
    kind: ReservationKind
    user_id: int
    user: str
    starts_at: datetime
    ends_at: datetime


@dataclass(frozen=True, slots=True)
class CardNow:
    """One card. `follower` has it next, where that is soon."""

    node: str
    index: int
    uuid: str | None
    gpu_type: str
    memory_bytes: int | None
    state: GpuState
    holder: CardHold | None
    follower: CardHold | None


@dataclass(frozen=True, slots=True)
class NodeNow:
    """One node with its cards by index. `available`: it gets new work; `detail` says all there is to say about why not.

    `source` is what it was made from, for whoever reads it again.
    """

    name: str
    available: bool
    detail: str | None
    cards: tuple[CardNow, ...]
    source: str = field(default="", repr=False, compare=False)

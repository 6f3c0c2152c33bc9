"""The nouns of planning: what the planner is told, and what it decides.

Times are timezone-aware UTC datetimes, lengths are timedeltas, ranges are half-open.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from reservation_core.domain.model import Reason


class Shape(NamedTuple):
    """What decides where a job fits: `gpus` cards on each of `nodes` distinct nodes, if possible on none of `avoid`."""

    gpus: int
    nodes: int
    avoid: frozenset[str] = frozenset()


class Asker(NamedTuple):
    """A user or project that asks for cards of a type: what quotas look at."""

    owner: int
    project: str | None
    gpu_type: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job in line: `gpus` cards on each of `nodes` distinct nodes, all of one type.

    `length` is the range it will be allocated (start allowance + duration). `gpu_type` None means any type.
    The line's order is (-priority, seq): a greater priority first, then first come first served. `version` is that of
    the row when it was read; a plan holds only as long as the row is the same. `avoid_nodes` are those where its pods
    could not start: they are used only when no others could ever run it.
    """

    id: str
    gpus: int
    nodes: int
    gpu_type: str | None
    length: timedelta
    priority: int
    seq: int
    version: int | None = None
    avoid_nodes: frozenset[str] = frozenset()
    owner: int = 0
    booking_id: str | None = None
    project: str | None = None

    @property
    def shape(self) -> Shape:
        """What decides where it fits."""
        return Shape(self.gpus, self.nodes, self.avoid_nodes)

    @property
    def key(self) -> tuple[int, int]:
        """Its place in the order of the line; smaller goes first."""
        return (-self.priority, self.seq)


@dataclass(frozen=True, slots=True)
class Commitment:
    """An open row of the ledger: a GPU promised for [start, end).

    `held` says that its pod may exist. A held GPU is not free even when `end` is past: the pod overruns. `planned` rows
    are the slot of a job that still waits. With `booking_id` the row lies within that booking's own rows.
    """

    reservation_id: str
    gpu_id: int
    start: datetime
    end: datetime
    held: bool
    planned: bool = False
    booking_id: str | None = None


@dataclass(frozen=True, slots=True)
class PlacedGpu:
    """One card of a start; `rank` 0.. numbers the nodes of a gang in the order of the pods."""

    gpu_id: int
    node: str
    index: int
    rank: int


@dataclass(frozen=True, slots=True)
class Start:
    """A decision: this job gets these cards for [start, end). `gpus` is ordered by rank, then index.

    `version` is that of the row it was decided for; None holds for any. With `booking_id` it runs within that booking.
    `had_slot` says that it leaves a slot behind. `asker` is there when a quota bounds whoever it is.
    """

    id: str
    start: datetime
    end: datetime
    gpus: tuple[PlacedGpu, ...]
    version: int | None = None
    booking_id: str | None = None
    had_slot: bool = False
    asker: Asker | None = None


@dataclass(frozen=True, slots=True)
class PlannedSlot:
    """A decision: this job will have these cards for [start, end) at the latest, and nobody else may be given them.

    It takes the place of the slot that the job had. Without `gpus` the job has none any more: it can't be placed.
    `because` says why a slot had to be moved later than what was promised; None where it was not. `asker` is there when
    a quota bounds whoever it is.
    """

    id: str
    start: datetime
    end: datetime
    gpus: tuple[PlacedGpu, ...]
    version: int | None = None
    booking_id: str | None = None
    because: str | None = None
    asker: Asker | None = None


@dataclass(frozen=True, slots=True)
class LateStart:
    """A job whose slot has come and that can't start yet, and why; `late` are those who still have its cards.

    Their ids are for the record: whose they are is not everybody's to know.
    """

    id: str
    because: str
    late: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WaitEstimate:
    """What a waiting job is told. `position` counts from 1 in the line of the requested type.

    `estimated_start_at` is None only when it can't be placed on the current inventory.
    """

    id: str
    position: int
    reason: Reason
    estimated_start_at: datetime | None

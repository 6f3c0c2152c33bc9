"""The nouns of planning: the planner's input and its decisions.

Times are timezone-aware UTC datetimes, lengths are timedeltas, ranges are half-open.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from reservation_core.domain.model import Node, Reason
from reservation_core.domain.request_terms import Share


class Shape(NamedTuple):
    """What decides where a job fits: `gpus` GPUs on each of `nodes` distinct nodes, if possible on none of `avoid`.

    `share` is what it asks for of each node beside GPUs; None: as much as its GPUs are.
    """

    gpus: int
    nodes: int
    avoid: frozenset[str] = frozenset()
    share: Share | None = None


class Asker(NamedTuple):
    """A user or project that asks for GPUs of a type, as quotas see it."""

    owner: int
    project: str | None
    gpu_type: str


class Need(NamedTuple):
    """A job that another one waits for: until its end, or (`by_start`) until its pods run.

    `beside`: how long its pods may take to run once it has GPUs, in microseconds.
    """

    job: str
    by_start: bool
    beside: int = 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job in the queue: `gpus` GPUs on each of `nodes` distinct nodes, all of one type (`gpu_type` None: of any).

    `length` is the range to allocate: start allowance + duration; for a preemptible job what it keeps for sure instead.
    Higher priority goes first; see `waiting_queue` for the order of equal ones, in which `submitted_at` counts.
    `promised_at` is its promised start, if it has one; both are microseconds since 1970, UTC. `version` is the row's
    when it was read; a plan is void once that changes. `avoid_nodes` are those where its pods could not start: they are
    used only if no others could ever run it. With a `share` it asks for CPUs or memory of each node.

    With `needs` it can't start yet: it waits for these jobs, or (if they are none) to be released. None: for no jobs.
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
    submitted_at: int = 0
    promised_at: int | None = None
    preemptible: bool = False
    share: Share | None = None
    needs: tuple[Need, ...] | None = None

    @property
    def shape(self) -> Shape:
        return Shape(self.gpus, self.nodes, self.avoid_nodes, self.share)

    @property
    def key(self) -> tuple[int, int]:
        """The sort key of the queue; smaller goes first."""
        return (-self.priority, self.seq)

    @property
    def all_gpus(self) -> int:
        """GPUs on all of its nodes together."""
        return self.gpus * self.nodes

    @property
    def asks(self) -> tuple[object, ...]:
        """All that decides where and when it may start, but for its place in the queue."""
        return self.shape, self.gpu_type, self.length, self.owner, self.project

    def asker(self, gpu_type: str) -> Asker:
        """The user or project that quotas bound if it gets GPUs of this type."""
        return Asker(self.owner, self.project, gpu_type)


@dataclass(frozen=True, slots=True)
class Commitment:
    """An open row of the ledger: a GPU promised for [start, end).

    `held`: its pod may exist. A held GPU is not free even when `end` is past: the pod overruns. `planned` rows are the
    slot of a waiting job. With `booking_id` the row lies within that booking's own rows. The job of a `preemptible` row
    goes on after `end` only while nobody else needs the GPU. `share` is what the reservation has of the GPU's node;
    None: as much as its GPUs are.
    """

    reservation_id: str
    gpu_id: int
    start: datetime
    end: datetime
    held: bool
    planned: bool = False
    booking_id: str | None = None
    preemptible: bool = False
    share: Share | None = None


def by_reservation(commitments: Iterable[Commitment]) -> dict[str, list[Commitment]]:
    """The rows of each reservation."""
    rows: dict[str, list[Commitment]] = {}
    for commitment in commitments:
        rows.setdefault(commitment.reservation_id, []).append(commitment)
    return rows


@dataclass(frozen=True, slots=True)
class PlanningSnapshot:
    """What the planner decides on: nodes, open rows, and the waiting jobs in memory.

    They are read one after the other: a job that has just started may be among those that wait and hold its GPUs, too.
    `waiting` may hold only the first part of a requested type's queue; `complete_types` are those that it holds whole
    (a type that no job waits for counts as complete). `dependants` are jobs with `needs`, of any type.
    """

    nodes: tuple[Node, ...]
    commitments: tuple[Commitment, ...]
    waiting: tuple[Waiting, ...]
    complete_types: frozenset[str | None]
    dependants: tuple[Waiting, ...] = ()


class PlacedGpu(NamedTuple):
    """One GPU of a start or slot; `rank` 0.. numbers the nodes of a gang in the order of the pods."""

    gpu_id: int
    node: str
    index: int  # type: ignore[assignment]  # hides the method of tuples, which nobody needs here
    rank: int


@dataclass(frozen=True, slots=True)
class Start:
    """A decision: this job gets these GPUs for [start, end). `gpus` is ordered by rank, then index.

    `version` is the row's that it was decided for; None matches any. With `booking_id` it runs within that booking.
    `had_slot`: it leaves a slot behind. `asker` is set when a quota bounds it.
    """

    id: str
    start: datetime
    end: datetime
    gpus: tuple[PlacedGpu, ...]
    version: int | None = None
    booking_id: str | None = None
    had_slot: bool = False
    asker: Asker | None = None

    @property
    def detail(self) -> str:
        """The words of the reason that the job has once it has its GPUs."""
        if self.gpus and self.gpus[0].gpu_id < 0:
            return f"Given CPUs and memory of {self.gpus[0].node}; its pod is being started."
        by_node: dict[str, list[int]] = {}
        for gpu in self.gpus:
            by_node.setdefault(gpu.node, []).append(gpu.index)
        places = " ".join(f"{node}:{','.join(map(str, sorted(indices)))}" for node, indices in by_node.items())
        return f"Given GPUs {places}; its pods are being started."


@dataclass(frozen=True, slots=True)
class PlannedSlot:
    """A decision: this job will have these GPUs for [start, end) at the latest, and no other job or booking may.

    It replaces the job's former slot, if it has one; else the job is promised a start by `promised_at`. Without `gpus`
    the job has no slot any more: it can't be placed. `because` says why the slot is later than the promised start; None
    if it is not. `asker` is set when a quota bounds it. With `follows` the job waits for others: the slot begins no
    earlier than these are as far.
    """

    id: str
    start: datetime
    end: datetime
    gpus: tuple[PlacedGpu, ...]
    version: int | None = None
    booking_id: str | None = None
    because: str | None = None
    asker: Asker | None = None
    promised_at: datetime | None = None
    follows: bool = False


@dataclass(frozen=True, slots=True)
class LateStart:
    """A job whose slot has come and that can't start yet, and why; `late` are the ids that still have its GPUs.

    These ids are for the audit log: not every user may know them.
    """

    id: str
    because: str
    late: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WaitEstimate:
    """What a waiting job shows. `position` counts from 1 in the queue of the requested type; None: it is in none yet.

    `estimated_start_at` is None only if it can't be placed on the current inventory. `p50` and `p90` are its start as
    predicted from how long jobs really run: by `p50` in half of all cases, by `p90` in nine of ten, never later than
    its promised start; None without a prediction.
    """

    id: str
    position: int | None
    reason: Reason
    estimated_start_at: datetime | None
    p50: datetime | None = None
    p90: datetime | None = None

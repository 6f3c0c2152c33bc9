"""The nouns of the system: nodes, GPUs, reservations, allocations, pods, and reasons.

Times are timezone-aware UTC datetimes, durations are timedeltas, memory is in bytes. Ranges are half-open.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from reservation_core.domain.cards.link_words import Links
from reservation_core.domain.disks.disk_uses import DiskUse
from reservation_core.domain.gpu_use.idle_rules import IdleWarning
from reservation_core.domain.request_terms import (
    ArrayTerms,
    EndSignal,
    Resources,
    Retries,
)
from reservation_core.domain.sessions.secret_uses import SecretUse
from reservation_core.domain.statuses import JobStatus, ReasonCode, ReservationKind
from reservation_core.domain.sync.job_sync import JobSync


class GpuCondition(StrEnum):
    """The condition of a GPU apart from its holders. Only `usable` GPUs get new allocations."""

    USABLE = "usable"
    QUARANTINED = "quarantined"
    FOREIGN = "foreign"
    LOST = "lost"
    MAINTENANCE = "maintenance"


@dataclass(frozen=True, slots=True)
class Reason:
    """A stable code, and a sentence for people that says what happened and what to do."""

    code: ReasonCode
    detail: str


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as the planner knows it. `id` is the ledger's key; people use (node, index)."""

    id: int
    node: str
    index: int
    gpu_type: str
    uuid: str | None = None
    memory_bytes: int | None = None
    condition: GpuCondition = GpuCondition.USABLE


class Spare(NamedTuple):
    """What a node, by its key in the ledger, keeps for jobs without GPUs."""

    node_id: int
    cpu_milli: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Node:
    """One machine and its GPUs, in index order. `available` is false while it is not ready, cordoned or removed.

    `links` say how its GPUs are linked, `cpu_milli` and `memory_bytes` what jobs with GPUs can have of it, if known.
    """

    name: str
    gpus: tuple[Gpu, ...]
    available: bool = True
    unavailable_detail: str | None = None
    links: Links | None = None
    cpu_milli: int | None = None
    memory_bytes: int | None = None
    spare: Spare | None = None


@dataclass(frozen=True, slots=True)
class PodWorkload:
    """What a pod runs. With an empty `command` it is a session: it holds GPUs and starts nothing.

    `unread`: the sealed form of variables that can't be read here; `env` is empty then.
    """

    command: tuple[str, ...] = ()
    image: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    working_dir: str | None = None
    unread: str | None = None
    secrets: tuple[SecretUse, ...] = ()
    sync: JobSync | None = None
    disks: tuple[DiskUse, ...] = ()


@dataclass(frozen=True, slots=True)
class AllocatedGpu:
    """One GPU of a reservation, as the ledger has it; `rank` 0.. numbers the pods of a gang.

    `claimed_by` is an unknown pod that claims to hold this GPU, too. `gpu_resource` is the extended resource that pods
    on its node request GPUs by, if any. Of a job without GPUs it is the job's place on a node, with an `index` below 0.
    """

    gpu_id: int
    node: str
    index: int
    uuid: str | None
    rank: int
    starts_at: datetime
    ends_at: datetime
    held: bool
    claimed_by: str | None = None
    gpu_resource: str | None = None
    gpu_type: str | None = None


ASKED_WITHIN = timedelta(seconds=5)
"""A preemptible job is asked for its GPUs so soon after others need them."""


@dataclass(frozen=True, slots=True)
class Preemption:
    """Whether a job gives its GPUs back when others need them, how it is told of its end, and what it was told.

    After a start it keeps them for `min_runtime`. `signalled_at` and `asked_at` are of this attempt: when it got its
    signal, and when it was asked to end and wait again. `times` counts how often it gave its GPUs back.
    """

    preemptible: bool = False
    min_runtime: timedelta = timedelta(0)
    end_signal: EndSignal | None = None
    signalled_at: datetime | None = None
    asked_at: datetime | None = None
    times: int = 0

    @property
    def lead(self) -> timedelta:
        """How long before its end it gets its signal; nothing without one."""
        return timedelta(0) if self.end_signal is None else self.end_signal.before

    @property
    def kept(self) -> timedelta:
        """How long nobody else is promised its GPUs after a start: its least time, its signal's lead, and a little."""
        return self.min_runtime + self.lead + ASKED_WITHIN


NO_PREEMPTION = Preemption()


@dataclass(frozen=True, slots=True)
class ArrayElement:
    """Which element of which array a job is; `index` counts from 0 to `size` - 1."""

    array_id: str
    index: int
    size: int


@dataclass(frozen=True, slots=True)
class Reservation:
    """A job or booking: the database row that everything else follows.

    `gpus` is per node. `attempt` counts allocations (0 = never allocated). `outcome` is set while `ending`: the status
    once its pods are gone. `range_end` is the end of its allocations' range while it holds any; `ends_at` its own end
    once it runs. `warned_s` is the smallest warning (seconds before the end) already given. Until `unsettled_until` a
    pod may still appear whose creation got no answer. With `booking_id` a job runs in that booking, for its `project`.
    A session ends when nobody was connected to it for `inactivity`. A `held` job waits for others; None: it names none.
    `retried` counts its retries so far. `idle` is set while it runs and is warned that its GPUs are idle, which counts
    from `idle_from` or its start. An `array` runs nothing itself, but its elements do, which have `element`. Without
    `resources` it has the share of its nodes that its GPUs are. `trace` is its OpenTelemetry trace, if it has one.
    """

    id: str
    seq: int
    kind: ReservationKind
    user_id: int
    user: str
    name: str | None
    status: JobStatus
    reason: Reason
    gpus: int
    gpu_type: str | None
    nodes: int
    duration: timedelta
    priority: int
    workload: PodWorkload
    created_at: datetime
    version: int
    attempt: int = 0
    outcome: JobStatus | None = None
    range_end: datetime | None = None
    started_at: datetime | None = None
    ends_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int | None = None
    warned_s: int | None = None
    unsettled_until: datetime | None = None
    booking_id: str | None = None
    project: str | None = None
    inactivity: timedelta | None = None
    held: bool | None = None
    retries: Retries | None = None
    retried: int = 0
    idle: IdleWarning | None = None
    idle_from: datetime | None = None
    array: ArrayTerms | None = None
    element: ArrayElement | None = None
    preemption: Preemption = NO_PREEMPTION
    resources: Resources | None = None
    trace: str | None = None


class PodPhase(StrEnum):
    """What the cluster reports of a pod. `gone`: it certainly no longer exists."""

    PENDING = "pending"
    RUNNING = "running"
    FINISHED = "finished"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class PodName:
    """A pod's identity: reservation, attempt and rank; `str()` is its name in the cluster."""

    reservation_id: str
    attempt: int
    rank: int

    def __str__(self) -> str:
        return f"{self.reservation_id}-{self.attempt}-{self.rank}"

    @classmethod
    def parse(cls, text: str) -> "PodName":
        """Parse a pod's name. Raises ValueError for a name that is not ours."""
        reservation_id, attempt, rank = text.rsplit("-", 2)
        return cls(reservation_id, int(attempt), int(rank))


@dataclass(frozen=True, slots=True)
class PodHolding:
    """What a pod says about itself, so that a restored ledger can adopt it.

    `pods` is the number of pods of the attempt; [starts_at, ends_at) is the range it was created for.
    """

    node: str
    gpu_indices: tuple[int, ...]
    pods: int
    starts_at: datetime
    ends_at: datetime


@dataclass(frozen=True, slots=True)
class PodPlace:
    """The node of a pod that does not say which GPUs it holds. `gpus` None: it may use any GPU of the node."""

    node: str
    gpus: int | None


@dataclass(frozen=True, slots=True)
class PodStatus:
    """One observation of one of our pods.

    `reason`: why a pending pod does not start, or why a finished one ended if its exit code does not tell. `holding` is
    None if unknown; then `find_pods` alone sets `place`. `hopeless`: a pending pod that can start nowhere;
    `hopeless_here`: not on its node, but perhaps on another. `created_at` is the cluster's time of creation, if known.
    """

    name: PodName
    phase: PodPhase
    started_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int | None = None
    reason: Reason | None = None
    holding: PodHolding | None = None
    hopeless: bool = False
    hopeless_here: bool = False
    place: PodPlace | None = None
    created_at: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class PodSecret:
    """A use of a secret, and the value. The value is in no representation of the object."""

    use: SecretUse
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class PodSpec:
    """What to run on one node for a reservation. `env` is complete: the user's variables and ours.

    At `deadline` the cluster itself ends the pod if nothing else has. `pods` is the number of pods of the attempt,
    [starts_at, ends_at) the range of its allocations. `gpu_resource` as in AllocatedGpu.
    """

    name: PodName
    user: str
    node: str
    gpu_indices: tuple[int, ...]
    gpu_uuids: tuple[str | None, ...]
    workload: PodWorkload
    env: tuple[tuple[str, str], ...]
    deadline: datetime
    grace: timedelta
    user_id: int = 0
    pods: int = 1
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    gpu_resource: str | None = None
    secrets: tuple[PodSecret, ...] = ()
    resources: Resources | None = None


@dataclass(frozen=True, slots=True)
class ForeignPod:
    """A pod outside our control that uses GPUs of our nodes; `gpu_indices` is None if unknown.

    `counted`: the cluster keeps its GPUs apart from ours, so that only their number matters. `certain`: it has these
    GPUs; otherwise only those of them that we don't use count as taken.
    """

    node: str
    description: str
    gpu_count: int
    gpu_indices: tuple[int, ...] | None
    counted: bool = False
    certain: bool = True

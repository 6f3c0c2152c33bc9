"""What the use cases need from the world, as protocols. Adapters implement them; nothing here acts.

Nobody commits but the unit of work: `async with uow_factory() as uow:` is one transaction, committed when the block
ends without an exception and rolled back otherwise.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol

from reservation_core.domain.lifecycle import Change
from reservation_core.domain.model import (
    AllocatedGpu,
    ForeignPod,
    GpuState,
    JobStatus,
    Node,
    NodeReport,
    PodSpec,
    PodStatus,
    Reason,
    Reservation,
    Role,
)
from reservation_core.domain.plan import Commitment, Start, WaitEstimate, Waiting


class QueueName(StrEnum):
    """Every PGMQ queue there is; each has a dead-letter queue `<name>_dlq`."""

    GPU_JOBS = "gpu_jobs"
    POD_OPERATIONS = "pod_operations"

    @property
    def dead_letters(self) -> str:
        """The name of the queue that takes what could not be handled."""
        return f"{self.value}_dlq"


class Channel(StrEnum):
    """What a process can be woken for. Wake-ups are hints: whoever waits also sweeps."""

    GPU_JOBS = "gpu_dev_gpu_jobs"
    POD_OPERATIONS = "gpu_dev_pod_operations"
    EVENTS = "gpu_dev_events"


class Clock(Protocol):
    """Where `now` comes from."""

    def now(self) -> datetime:
        """The current time, timezone-aware UTC."""
        ...


class IdSource(Protocol):
    """Fresh, typed, sayable ids such as `job-7f3k9q2m`, and secrets."""

    def new_id(self, prefix: str) -> str:
        """A fresh id `<prefix>-<8 characters of Crockford base 32>`."""
        ...

    def new_secret(self) -> str:
        """A fresh bearer token (at least 256 bits)."""
        ...

    def digest(self, secret: str) -> bytes:
        """What is stored of a secret: its SHA-256."""
        ...


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """One delivery. `read_count` is 1 at the first; `body` is whatever JSON was sent, not yet checked."""

    id: int
    read_count: int
    enqueued_at: datetime
    body: Any


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that could not be handled, with its last error."""

    id: int
    queue: str
    enqueued_at: datetime
    body: Any
    error: str
    read_count: int
    original_id: int | None


@dataclass(frozen=True, slots=True)
class QueueMetrics:
    """Depth and age of one queue."""

    queue: str
    depth: int
    oldest_age_s: float | None


class Queue(Protocol):
    """PGMQ inside the transaction of the unit of work it hangs on."""

    async def send(self, queue: QueueName, bodies: Sequence[dict[str, Any]]) -> None:
        """Send all in one statement."""
        ...

    async def read(self, queue: QueueName, *, visibility: timedelta, limit: int) -> list[QueuedMessage]:
        """Take up to `limit` visible messages and hide them for `visibility`."""
        ...

    async def delete(self, queue: QueueName, ids: Sequence[int]) -> None:
        """Forget handled messages; unknown ids are nothing."""
        ...

    async def postpone(self, queue: QueueName, ids: Sequence[int], by: timedelta) -> None:
        """Make messages visible again only after `by`."""
        ...

    async def bury(self, queue: QueueName, message: QueuedMessage, error: str) -> None:
        """Move a message, with its error, to the dead-letter queue."""
        ...

    async def dead_letters(self, queue: QueueName, limit: int) -> list[DeadLetter]:
        """The oldest dead letters."""
        ...

    async def redrive(self, queue: QueueName, ids: Sequence[int] | None) -> int:
        """Send dead letters (all when `ids` is None) to their queue again; returns how many."""
        ...

    async def metrics(self) -> list[QueueMetrics]:
        """Depth and age of every queue, dead letters too."""
        ...


@dataclass(frozen=True, slots=True)
class NewReservation:
    """A job as accepted, before it is stored. `answer` is the response body kept for its Idempotency-Key."""

    reservation: Reservation
    actor: str
    idempotency_key: str | None = None
    request_hash: bytes | None = None
    answer: bytes | None = None


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of one submission: stored, or a replay with the answer given the first time."""

    reservation_id: str
    replayed_answer: bytes | None = None
    conflict: bool = False


@dataclass(frozen=True, slots=True)
class JobView:
    """A reservation as readers see it: with its place in line, its estimate and its GPUs."""

    reservation: Reservation
    queue_position: int | None
    estimated_start_at: datetime | None
    allocations: tuple[AllocatedGpu, ...]


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs a list shows. `user_id` None means everybody's (administrators only)."""

    user_id: int | None
    statuses: frozenset[JobStatus] | None = None
    user: str | None = None


class Reservations(Protocol):
    """Reservations, their life and their allocations."""

    async def submit(self, batch: Sequence[NewReservation], now: datetime) -> list[Submitted]:
        """Store a batch with its events and messages in one statement; answers in the order given."""
        ...

    async def lock(self, ids: Sequence[str]) -> dict[str, Reservation]:
        """Read and lock rows (in id order) until the transaction ends; unknown ids are left out."""
        ...

    async def get(self, ids: Sequence[str]) -> dict[str, Reservation]:
        """Read rows without locking."""
        ...

    async def allocations(self, ids: Sequence[str]) -> dict[str, tuple[AllocatedGpu, ...]]:
        """The GPUs of each reservation's newest attempt (released ones too), by rank and index."""
        ...

    async def apply(self, changes: Sequence[Change]) -> None:
        """Write what `lifecycle.transition` decided: rows, ledger, events and messages, one statement each.

        Raises CalendarConflictError when an extension meets somebody else's range.
        """
        ...

    async def view(self, reservation_id: str, user_id: int | None) -> JobView | None:
        """One job as its owner (or, with None, an administrator) sees it."""
        ...

    async def views(self, which: JobFilter, *, limit: int, before_seq: int | None) -> list[JobView]:
        """Newest first, older than `before_seq`."""
        ...

    async def waiting_views(self, user_id: int | None, *, limit: int, after: tuple[int, int] | None) -> list[JobView]:
        """Who waits, in line order; `after` is the last seen (-priority, seq)."""
        ...

    async def waiting_totals(self) -> list[tuple[str | None, int, int]]:
        """Per requested type: (gpu_type, waiting jobs, waiting GPUs)."""
        ...

    async def due(self, now: datetime, limit: int) -> list[str]:
        """Running past their end."""
        ...

    async def warnable(self, now: datetime, thresholds_s: Sequence[int], limit: int) -> list[str]:
        """Running, with a warning due that was not given yet."""
        ...

    async def stuck(self, *, starting_before: datetime, ending_before: datetime, limit: int) -> list[str]:
        """Starting since before the one time, or ending since before the other: the oldest `limit` of each."""
        ...

    async def live(self) -> list[Reservation]:
        """All that may have pods: starting, running, ending."""
        ...

    async def resend(self, ids: Sequence[str]) -> int:
        """Send the pod operation that fits each row's state again (create while starting, delete while ending).

        Nothing is sent that waits in the queue already. Returns how many messages were sent.
        """
        ...


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """What a plan's commit achieved: the ids that really started. The others had left the line meanwhile."""

    started: frozenset[str]


@dataclass(frozen=True, slots=True)
class PlanningSnapshot:
    """Everything the planner keeps in memory, read in one consistent view."""

    nodes: tuple[Node, ...]
    commitments: tuple[Commitment, ...]
    waiting: tuple[Waiting, ...]
    complete_types: frozenset[str | None]


class Planning(Protocol):
    """What the planner reads and writes; every write is fenced by the epoch."""

    async def acquire(self, holder: str, ttl: timedelta) -> int | None:
        """Become the planner if nobody is or the lease ran out; returns the new epoch, or None."""
        ...

    async def renew(self, epoch: int, ttl: timedelta) -> bool:
        """Keep the lease; false when another planner has taken over."""
        ...

    async def release(self, epoch: int) -> None:
        """Let the next planner start at once."""
        ...

    async def snapshot(self, window: int, start_allowance: timedelta) -> PlanningSnapshot:
        """Nodes, open allocations and the first `window` waiting jobs of each requested type."""
        ...

    async def nodes(self) -> tuple[Node, ...]:
        """Only the inventory."""
        ...

    async def changed(self, ids: Sequence[str], start_allowance: timedelta) -> tuple[list[Waiting], list[Commitment]]:
        """What is now true of these reservations: waiting, holding, or (absent from both) neither."""
        ...

    async def more_waiting(
        self, gpu_type: str | None, after: tuple[int, int] | None, limit: int, start_allowance: timedelta
    ) -> list[Waiting]:
        """The next waiting jobs of one requested type after (-priority, seq)."""
        ...

    async def commit(
        self, epoch: int, starts: Sequence[Start], now: datetime, handled: Sequence[int] = ()
    ) -> PlanOutcome:
        """Allocate and move to `starting`, with events and create messages; forget the `handled` messages. One statement.

        Raises LostLeadershipError when the epoch is old, CalendarConflictError when the ledger refuses.
        """
        ...

    async def publish_estimates(self, epoch: int, estimates: Sequence[WaitEstimate], now: datetime) -> None:
        """Replace what waiting jobs are told: place in line, reason, estimated start."""
        ...


class DatabaseUnavailableError(Exception):
    """The database could not be reached or went away; nothing of the transaction is known to have happened."""


class LostLeadershipError(Exception):
    """Another planner has taken over: forget the plan and start again as a follower."""


@dataclass(frozen=True, slots=True)
class EventRecord:
    """One line of the append-only record."""

    id: int
    reservation_id: str | None
    at: datetime
    actor: str
    kind: str
    before: str | None
    after: str | None
    reason: Reason | None
    data: dict[str, Any]


class Events(Protocol):
    """The append-only record: who, what, before, after, why."""

    async def of_reservation(self, reservation_id: str, after_id: int, limit: int) -> list[EventRecord]:
        """In order, those after `after_id`."""
        ...

    async def append(
        self,
        *,
        actor: str,
        kind: str,
        at: datetime,
        subject: str | None = None,
        data: dict[str, Any] | None = None,
    ) -> None:
        """Record something that is not about a reservation (a token, a user, a node)."""
        ...


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


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls, from a verified credential."""

    user_id: int
    user: str
    role: Role
    token_id: str
    expires_at: datetime | None

    @property
    def is_admin(self) -> bool:
        """Whether everything is theirs to see and change."""
        return self.role is Role.ADMIN


@dataclass(frozen=True, slots=True)
class UserRecord:
    """A user."""

    id: int
    name: str
    role: Role
    created_at: datetime
    disabled_at: datetime | None


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token, without its secret."""

    id: str
    user_id: int
    user: str
    name: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class Identities(Protocol):
    """Users and tokens."""

    async def principal(self, digest: bytes, now: datetime) -> Principal | None:
        """Whose token this is, if it is valid now and its user is not disabled."""
        ...

    async def create_user(self, name: str, role: Role, now: datetime) -> UserRecord:
        """Raises NameTakenError."""
        ...

    async def user(self, name: str) -> UserRecord | None:
        """By name."""
        ...

    async def users(self, *, after: str | None, limit: int) -> list[UserRecord]:
        """By name."""
        ...

    async def disable_user(self, name: str, now: datetime) -> UserRecord | None:
        """Their tokens stop working; their jobs go on."""
        ...

    async def create_token(
        self, token_id: str, user_id: int, name: str | None, digest: bytes, expires_at: datetime | None, now: datetime
    ) -> TokenRecord:
        """Store a token's digest."""
        ...

    async def tokens(self, user_id: int | None, *, after: str | None, limit: int) -> list[TokenRecord]:
        """By id; None means everybody's."""
        ...

    async def revoke_token(self, token_id: str, user_id: int | None, now: datetime) -> TokenRecord | None:
        """None when there is no such token for this user (None: for anybody)."""
        ...

    async def touch_tokens(self, used: dict[str, datetime]) -> None:
        """Write when tokens were last used, many at once."""
        ...


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """What an Idempotency-Key was answered with."""

    request_hash: bytes
    status: int
    body: bytes


class Idempotency(Protocol):
    """Answers kept for a day, so that a repeated POST does nothing twice."""

    async def claim(self, user_id: int, key: str, request_hash: bytes, now: datetime) -> StoredAnswer | None:
        """Take the key (None: it was free, go on and `store`), or get its answer.

        A second caller with the same key waits for the first one's transaction.
        Raises IdempotencyConflictError when the key was used with another request.
        """
        ...

    async def store(self, user_id: int, key: str, status: int, body: bytes) -> None:
        """Keep the answer, in the same transaction as the act."""
        ...

    async def forget(self, before: datetime) -> int:
        """Delete old keys; returns how many."""
        ...


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job that has ended, with the event that says so."""

    event_id: int
    status: JobStatus
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime


class Measurements(Protocol):
    """What metrics are made of; every call is cheap however many jobs there were."""

    async def job_counts(self) -> list[tuple[JobStatus, int]]:
        """Jobs that have not ended, by status; all four statuses, zeros too."""
        ...

    async def newest_event(self, settled_before: datetime) -> int:
        """The newest event older than that; 0 when there is none."""
        ...

    async def ended(self, after_event: int, up_to_event: int, limit: int) -> list[EndedJob]:
        """Jobs whose final event is in (after_event, up_to_event], in event order."""
        ...


class UnitOfWork(Protocol):
    """One transaction and everything that can be done in it."""

    @property
    def reservations(self) -> Reservations: ...
    @property
    def planning(self) -> Planning: ...
    @property
    def events(self) -> Events: ...
    @property
    def inventory(self) -> Inventory: ...
    @property
    def identities(self) -> Identities: ...
    @property
    def idempotency(self) -> Idempotency: ...
    @property
    def measurements(self) -> Measurements: ...
    @property
    def queue(self) -> Queue: ...

    async def hold_pod_lock(self, reservation_id: str) -> None:
        """Wait until nobody else creates or finalises this reservation's pods; held until the transaction ends."""
        ...

    async def try_pod_locks(self, reservation_ids: Sequence[str]) -> set[str]:
        """Take those of these locks that are free now, without waiting; returns whose were taken."""
        ...

    def wake(self, channel: Channel) -> None:
        """Wake listeners once this transaction has committed."""
        ...


class UnitOfWorkFactory(Protocol):
    """Opens units of work: `async with uow_factory() as uow:`."""

    def __call__(self, *, one_statement: bool = False) -> AbstractAsyncContextManager[UnitOfWork]:
        """A transaction; with `one_statement` each statement is one of its own, which saves two round trips.

        That is only right for work whose every write is in a single statement.
        """
        ...


class Wakeups(Protocol):
    """Waiting for a channel."""

    def subscribe(self, channel: Channel) -> AbstractAsyncContextManager["Subscription"]:
        """Listen while the block runs."""
        ...


class Subscription(Protocol):
    """One listener's view of a channel. Wake-ups that come while nobody waits are remembered (as one)."""

    async def wait(self, timeout: timedelta) -> bool:
        """True when woken, false when the time ran out."""
        ...


class ClusterUnavailableError(Exception):
    """The cluster could not be asked or did not answer. Says nothing about any pod: try again."""


@dataclass(frozen=True, slots=True)
class PodRefusedError(Exception):
    """The cluster will never run this pod as specified."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class PodListing:
    """Our pods, and GPU users that are not ours."""

    pods: tuple[PodStatus, ...]
    foreign: tuple[ForeignPod, ...] = field(default=())


class Cluster(Protocol):
    """What runs pods. Any method may raise ClusterUnavailableError; none takes an error for «gone»."""

    async def list_nodes(self) -> list[NodeReport]:
        """Nodes that are ours, with their GPUs."""
        ...

    async def list_pods(self) -> PodListing:
        """All our pods that exist (finished ones until they are deleted), and foreign GPU users."""
        ...

    async def find_pods(self, reservation_id: str) -> list[PodStatus]:
        """One reservation's pods that provably exist now, of every attempt; an empty list means all are gone."""
        ...

    def watch(self) -> AsyncIterator[PodStatus]:
        """Every existing pod once, then every change, `gone` last. Ends only with an exception or `aclose`."""
        ...

    async def create_pod(self, spec: PodSpec) -> None:
        """Create and start a pod; idempotent by name: one that exists or ever ran is left alone.

        Raises PodRefusedError when it can never run.
        """
        ...

    async def delete_pod(self, name: str, grace: timedelta) -> None:
        """Ask for a pod's end: SIGTERM, `grace`, SIGKILL; returns at once. Unknown names are nothing.

        A finished pod is removed; removal is seen through `watch` and `find_pods`.
        """
        ...

    async def extend_deadline(self, name: str, deadline: datetime) -> None:
        """Move the second belt (see PodSpec.deadline)."""
        ...

    def pod_logs(self, name: str, *, follow: bool) -> AsyncIterator[bytes]:
        """What the pod has printed so far; with `follow` also what it goes on to print, until it ends.

        Works for pods that are gone as long as their output is kept; empty for a pod that never was.
        """
        ...

    async def close(self) -> None:
        """Let go of connections and watchers; pods go on."""
        ...

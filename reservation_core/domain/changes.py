"""Events, effects and changes of a reservation, as data.

`lifecycle.transition` turns an event into effects; use cases carry them out.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from reservation_core.domain.event_kinds import EventKind
from reservation_core.domain.gpu_use.idle_rules import IdleWarning
from reservation_core.domain.model import Reason, Reservation
from reservation_core.domain.request_terms import ArrayCounts
from reservation_core.domain.statuses import JobStatus, ReasonCode

SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class PodsRunning:
    """Every pod of the reservation runs, the last since `at`. After its end its pods may need `turnaround` to go."""

    at: datetime
    turnaround: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class PodsFinished:
    """The workload ended by itself: all pods finished, or one failed. `reason` overrides the one of the exit code.

    `started_at` None: not known to have run. `pod` names the pod of a gang that ended it. `ran` is its run time by its
    node's clock; None if unknown.
    """

    at: datetime
    exit_code: int | None
    started_at: datetime | None = None
    reason: Reason | None = None
    pod: str | None = None
    ran: timedelta | None = None


@dataclass(frozen=True, slots=True)
class PodsLost:
    """A pod that should exist does not, or is being removed by another party: `code` says which."""

    detail: str
    code: ReasonCode = ReasonCode.POD_LOST


@dataclass(frozen=True, slots=True)
class StartRefused:
    """The cluster will never run these pods, on any node."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class StartDelayed:
    """The pods do not run yet, for a reason that the cluster gives."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class StartFailed:
    """A pod can't start on its node; `max_starts` is the number of attempts that a reservation has."""

    reason: Reason
    max_starts: int


@dataclass(frozen=True, slots=True)
class StartTimedOut:
    """The pods did not run within the start allowance; `max_starts` as in StartFailed."""

    allowance: timedelta
    max_starts: int


@dataclass(frozen=True, slots=True)
class PodsGone:
    """No pod of the reservation exists any more."""


@dataclass(frozen=True, slots=True)
class EndReached:
    """The clock has passed the end of the reservation."""


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """Nobody has been connected to the session for its `inactivity`."""


@dataclass(frozen=True, slots=True)
class WarningDue:
    """The end is nearer than `before_s` seconds."""

    before_s: int


@dataclass(frozen=True, slots=True)
class GpusIdle:
    """All its GPUs are idle, by the policy: the job gets this warning."""

    warning: IdleWarning


@dataclass(frozen=True, slots=True)
class IdleOver:
    """The warning that its GPUs are idle is void: they are used, their use is unknown, or the rule has changed."""


@dataclass(frozen=True, slots=True)
class IdleReleaseDue:
    """The GPUs of a warned job are idle still, and the policy releases them. `requeue`: the job waits again then."""

    requeue: bool = False


@dataclass(frozen=True, slots=True)
class KeepRequested:
    """The owner or an administrator needs the idle GPUs of a warned job still."""

    actor: str


@dataclass(frozen=True, slots=True)
class SignalDue:
    """The job's end is so near that it gets the signal that it asked for."""


@dataclass(frozen=True, slots=True)
class GpusNeeded:
    """Others need the GPUs of a preemptible job, or its time since it was asked for them is over.

    `at`: from when on a booking has them that is made now.
    """

    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """The owner or an administrator cancels the reservation, with an optional reason `why`."""

    actor: str
    by_admin: bool = False
    why: str | None = None


@dataclass(frozen=True, slots=True)
class ExtendRequested:
    """The owner or an administrator extends the reservation; `longest` is the allowed total.

    `by_itself`: the job did, by its own token, which says nothing about whether anybody needs its idle GPUs.
    """

    actor: str
    by: timedelta
    longest: timedelta
    by_itself: bool = False


@dataclass(frozen=True, slots=True)
class NodeFenced:
    """An administrator states that a node of its pods has no power; `max_starts` as in StartFailed."""

    node: str
    actor: str
    why: str | None
    max_starts: int


NO_GPU = -1


@dataclass(frozen=True, slots=True)
class HeldGpu:
    """One GPU that a pod claims to hold; `rank` is the pod's. Of a pod without GPUs, `index` is `NO_GPU`."""

    node: str
    index: int
    rank: int


@dataclass(frozen=True, slots=True)
class Adopted:
    """Pods of an attempt that the ledger does not know (it was restored from a backup, say) hold these GPUs."""

    attempt: int
    cards: tuple[HeldGpu, ...]
    range_end: datetime


@dataclass(frozen=True, slots=True)
class BookingOver:
    """The booking around a waiting or running job is over; the job ends with `outcome` and `reason`."""

    outcome: JobStatus
    reason: Reason
    actor: str = SYSTEM


@dataclass(frozen=True, slots=True)
class DrainBefore:
    """An administrator needs some of its GPUs in [at, until), for the reason `why`; its pods need `grace` to end."""

    at: datetime
    until: datetime
    grace: timedelta
    why: str
    actor: str


@dataclass(frozen=True, slots=True)
class DependenciesMet:
    """All jobs that the reservation waits for have done what it waits for."""


@dataclass(frozen=True, slots=True)
class DependencyFailed:
    """A job that the reservation waits for will never do what it waits for."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class ElementsChanged:
    """Elements of an array have started or ended. `whole`: there will be no others, and all of them are over.

    `worst_exit` is the largest exit code of elements that did not succeed.
    """

    counts: ArrayCounts
    whole: bool
    worst_exit: int | None


Event = (
    PodsRunning
    | PodsFinished
    | PodsLost
    | StartRefused
    | StartDelayed
    | StartFailed
    | StartTimedOut
    | PodsGone
    | EndReached
    | LeftAlone
    | WarningDue
    | GpusIdle
    | IdleOver
    | IdleReleaseDue
    | KeepRequested
    | SignalDue
    | GpusNeeded
    | CancelRequested
    | ExtendRequested
    | NodeFenced
    | Adopted
    | BookingOver
    | DrainBefore
    | DependenciesMet
    | DependencyFailed
    | ElementsChanged
)


@dataclass(frozen=True, slots=True)
class DeletePods:
    """Ask the cluster to end and delete the pods."""


@dataclass(frozen=True, slots=True)
class MoveDeadline:
    """Tell the cluster the new deadline of the pods."""


@dataclass(frozen=True, slots=True)
class SignalPods:
    """Send the reservation's `end_signal` to its pods."""


@dataclass(frozen=True, slots=True)
class SetRangeEnd:
    """The ledger's range now ends at `to`: earlier frees the rest, later may meet another reservation's range."""

    to: datetime


@dataclass(frozen=True, slots=True)
class ReleaseGpus:
    """Close the ledger's rows: hold and range end now.

    `ran_from`: the start of the run that they were for, if the reservation itself forgets it for another attempt.
    """

    ran_from: datetime | None = None


@dataclass(frozen=True, slots=True)
class TakeGpus:
    """Write into the ledger that these GPUs are held from now on, with a range until `until`."""

    cards: tuple[HeldGpu, ...]
    until: datetime


@dataclass(frozen=True, slots=True)
class MoveToEnd:
    """Give the reservation the last place of its priority in the queue."""


@dataclass(frozen=True, slots=True)
class AvoidNodes:
    """Use the nodes of this attempt again only if no others exist."""


@dataclass(frozen=True, slots=True)
class Replan:
    """The request changed: the promised start is void, and the job gets a new slot."""


@dataclass(frozen=True, slots=True)
class WakePlanner:
    """The planner's knowledge of this reservation is stale."""


@dataclass(frozen=True, slots=True)
class Record:
    """One line for the audit log. `reason`: of a job's line; None: the job's own reason after the change."""

    kind: EventKind
    actor: str = SYSTEM
    data: dict[str, Any] = field(default_factory=dict)
    reason: Reason | None = None


Effect = (
    DeletePods
    | MoveDeadline
    | SignalPods
    | SetRangeEnd
    | MoveToEnd
    | ReleaseGpus
    | TakeGpus
    | AvoidNodes
    | Replan
    | WakePlanner
    | Record
)
Decision = tuple[Reservation, tuple[Effect, ...]]
"""The reservation after a transition, and the effects to carry out."""


@dataclass(frozen=True, slots=True)
class DecidedChange:
    """A decided transition to be written: the row before and after, and the effects."""

    before: Reservation
    after: Reservation
    effects: tuple[Effect, ...]
    at: datetime

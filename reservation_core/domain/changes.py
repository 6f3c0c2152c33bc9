"""What happens to a reservation, and what has to be done about it: events, effects and changes, as data.

`lifecycle.transition` turns an event into effects; use cases carry these out.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from reservation_core.domain.event_kinds import EventKind
from reservation_core.domain.model import JobStatus, Reason, ReasonCode, Reservation

SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class PodsRunning:
    """Every pod of the reservation runs, the last since `at`. After its end its pods may need `turnaround` to go."""

    at: datetime
    turnaround: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class PodsFinished:
    """The workload ended by itself: all pods finished, or one failed. `reason` when the cluster knows better.

    `started_at` is None when it is not known to have run. `pod` names the one of a gang whose end this is. `ran`: for
    how long, by its node's own clock; None where that is not known.
    """

    at: datetime
    exit_code: int | None
    started_at: datetime | None = None
    reason: Reason | None = None
    pod: str | None = None
    ran: timedelta | None = None


@dataclass(frozen=True, slots=True)
class PodsLost:
    """A pod that should exist provably does not, or somebody else is taking it away: `code` says which."""

    detail: str
    code: ReasonCode = ReasonCode.POD_LOST


@dataclass(frozen=True, slots=True)
class StartRefused:
    """The cluster will never run these pods, wherever."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class StartDelayed:
    """The pods do not run yet, and the cluster says why."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class StartFailed:
    """A pod will not start where it is; `max_starts` is how many attempts a reservation has in all."""

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
    """The clock has passed the reservation's end."""


@dataclass(frozen=True, slots=True)
class WarningDue:
    """The end is nearer than `before_s` seconds."""

    before_s: int


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """Its owner or an administrator wants it to end; `why`, where there is more to say than that."""

    actor: str
    by_admin: bool = False
    why: str | None = None


@dataclass(frozen=True, slots=True)
class ExtendRequested:
    """Its owner or an administrator wants it to last longer; `longest` is what the operators allow in all."""

    actor: str
    by: timedelta
    longest: timedelta


@dataclass(frozen=True, slots=True)
class NodeFenced:
    """An administrator's word that a node of its pods is without power; `max_starts` as in StartFailed."""

    node: str
    actor: str
    why: str | None
    max_starts: int


@dataclass(frozen=True, slots=True)
class HeldCard:
    """One card that a pod says it holds; `rank` is the pod's."""

    node: str
    index: int
    rank: int


@dataclass(frozen=True, slots=True)
class Adopted:
    """Pods of an attempt that the ledger has forgotten (it comes from a backup, say) hold these cards."""

    attempt: int
    cards: tuple[HeldCard, ...]
    range_end: datetime


@dataclass(frozen=True, slots=True)
class BookingOver:
    """The booking that a job waits or runs within is over: `outcome` is what becomes of the job, `reason` says why."""

    outcome: JobStatus
    reason: Reason
    actor: str = SYSTEM


@dataclass(frozen=True, slots=True)
class DrainBefore:
    """An administrator needs some of its GPUs in [at, until); its pods need `grace` to end. `why` says what for."""

    at: datetime
    until: datetime
    grace: timedelta
    why: str
    actor: str


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
    | WarningDue
    | CancelRequested
    | ExtendRequested
    | NodeFenced
    | Adopted
    | BookingOver
    | DrainBefore
)


@dataclass(frozen=True, slots=True)
class DeletePods:
    """Ask the cluster to end and remove the pods."""


@dataclass(frozen=True, slots=True)
class MoveDeadline:
    """Tell the cluster that its second belt moves with the end."""


@dataclass(frozen=True, slots=True)
class SetRangeEnd:
    """The ledger's range now ends at `to` (earlier: the rest goes back; later: may meet somebody else's range)."""

    to: datetime


@dataclass(frozen=True, slots=True)
class ReleaseGpus:
    """Close the ledger's rows: the hold ends now, and so does the range."""


@dataclass(frozen=True, slots=True)
class TakeGpus:
    """Write into the ledger that these cards are held from now on; the range ends at `until`."""

    cards: tuple[HeldCard, ...]
    until: datetime


@dataclass(frozen=True, slots=True)
class AvoidNodes:
    """The nodes of this attempt are used again only if there are no others."""


@dataclass(frozen=True, slots=True)
class PlanAnew:
    """It asks for something else than before: what it was promised no longer holds, and it gets a new slot."""


@dataclass(frozen=True, slots=True)
class WakePlanner:
    """What the planner knows of this reservation is no longer true."""


@dataclass(frozen=True, slots=True)
class Record:
    """One line for the append-only record."""

    kind: EventKind
    actor: str = SYSTEM
    data: dict[str, Any] = field(default_factory=dict)


Effect = DeletePods | MoveDeadline | SetRangeEnd | ReleaseGpus | TakeGpus | AvoidNodes | PlanAnew | WakePlanner | Record


@dataclass(frozen=True, slots=True)
class DecidedChange:
    """A transition that was decided and is to be written: the row before and after, and what else must happen."""

    before: Reservation
    after: Reservation
    effects: tuple[Effect, ...]
    at: datetime

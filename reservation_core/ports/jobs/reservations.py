"""Reservations and their allocations."""

from dataclasses import dataclass
from datetime import datetime

from reservation_core.domain.errors import (
    BeyondBookedShareError,
    BookingNotUsableError,
    NotKeptError,
    NotPermittedError,
    UnknownBookingError,
    UnknownCallerError,
)
from reservation_core.domain.jobs.dependencies import KnownDependency
from reservation_core.domain.model import AllocatedGpu, Reservation
from reservation_core.domain.policy.rules import RuleBreach
from reservation_core.domain.request_terms import ArrayCounts
from reservation_core.domain.statuses import JobStatus

Refusal = (
    UnknownBookingError
    | BookingNotUsableError
    | BeyondBookedShareError
    | NotKeptError
    | NotPermittedError
    | UnknownCallerError
)
"""Why a submission was refused: its booking can't be used, or its owner is not in its project or is disabled."""


class UnknownGpuError(Exception):
    """A change takes a GPU that the inventory lacks; nothing of its transaction happened."""


@dataclass(frozen=True, slots=True)
class NewReservation:
    """A new job, before it is stored. `answer` is the response body for its Idempotency-Key.

    `after`: the jobs that it waits for. `foreign`: what its project breaks, whose member its owner was not.
    """

    reservation: Reservation
    actor: str
    idempotency_key: str | None = None
    request_hash: bytes | None = None
    answer: bytes | None = None
    after: tuple[KnownDependency, ...] = ()
    foreign: RuleBreach | None = None


@dataclass(frozen=True, slots=True)
class Submitted:
    """The result of a submission: stored, a replay with the first answer, or refused."""

    reservation_id: str
    replayed_answer: bytes | None = None
    conflict: bool = False
    refusal: Refusal | None = None

    @property
    def is_stored(self) -> bool:
        """Whether the submission is a job now."""
        return self.replayed_answer is None and not self.conflict and self.refusal is None


@dataclass(frozen=True, slots=True)
class PredictedStart:
    """A start as learnt from how long jobs really run: by `p50` in half of all cases, by `p90` in nine of ten."""

    p50: datetime
    p90: datetime


@dataclass(frozen=True, slots=True)
class JobView:
    """A reservation with its queue position, estimated and promised start, and GPUs.

    `promised_start_at` is the first estimate that the ledger guaranteed; it stays after the job has started.
    `predicted_start` is known only of waiting jobs, and not of all.
    `shared_with`: names of users; None where it is not read, and for those users themselves.
    `after`: the jobs that it waits for, the one that decides before the others, or has waited for. `counts`: the
    elements of an array.
    """

    reservation: Reservation
    queue_position: int | None
    estimated_start_at: datetime | None
    allocations: tuple[AllocatedGpu, ...]
    promised_start_at: datetime | None = None
    predicted_start: PredictedStart | None = None
    shared_with: tuple[str, ...] | None = None
    after: tuple[KnownDependency, ...] = ()
    counts: ArrayCounts | None = None


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list. `user_id` None: all users' (administrators only)."""

    user_id: int | None
    statuses: frozenset[JobStatus] | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True)
class SharedFilter:
    """Which shared jobs to list."""

    statuses: frozenset[JobStatus] | None = None
    owner: str | None = None

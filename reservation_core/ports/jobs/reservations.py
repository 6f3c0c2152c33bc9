"""Reservations, their life and their allocations."""

from dataclasses import dataclass
from datetime import datetime

from reservation_core.domain.errors import (
    BookingNotUsableError,
    NotPermittedError,
    UnknownBookingError,
    UnknownCallerError,
)
from reservation_core.domain.model import AllocatedGpu, JobStatus, Reservation

Refusal = UnknownBookingError | BookingNotUsableError | NotPermittedError | UnknownCallerError
"""Why a submission was not stored: its booking can't be used, its owner is not in its project, or is disabled."""


class UnknownCardError(Exception):
    """A change takes a card that the inventory does not have; nothing of its transaction happened."""


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
    """What became of one submission: stored, a replay with the answer given the first time, or refused."""

    reservation_id: str
    replayed_answer: bytes | None = None
    conflict: bool = False
    refusal: Refusal | None = None

    @property
    def is_stored(self) -> bool:
        """Whether the submission is a job from now on."""
        return self.replayed_answer is None and not self.conflict and self.refusal is None


@dataclass(frozen=True, slots=True)
class JobView:
    """A reservation as readers see it: with its place in line, its estimate, its promise and its GPUs.

    `promised_start_at` is the first estimate that the ledger stood for; kept when the job has long started.
    """

    reservation: Reservation
    queue_position: int | None
    estimated_start_at: datetime | None
    allocations: tuple[AllocatedGpu, ...]
    promised_start_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs a list shows. `user_id` None means everybody's (administrators only)."""

    user_id: int | None
    statuses: frozenset[JobStatus] | None = None
    user: str | None = None

"""Reservations, their life and their allocations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from reservation_core.domain.changes import DecidedChange
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

    async def apply(self, changes: Sequence[DecidedChange]) -> None:
        """Write what `lifecycle.transition` decided: rows, ledger, events and messages, one statement each.

        Raises CalendarConflictError when an extension meets somebody else's range, or taken cards are another's, and
        UnknownCardError when a taken card is not in the inventory.
        """
        ...

    async def unsettle(self, ids: Sequence[str], until: datetime) -> dict[str, datetime | None]:
        """Note until when pods of these may come to be that were asked for and not answered.

        Answers what was noted before. Call it under their pod locks.
        """
        ...

    async def settle(self, former: Mapping[str, datetime | None]) -> None:
        """All was answered since that was noted: it is as it was before."""
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

    async def next_end(self) -> datetime | None:
        """When the next of those that run has to end, in the past while it is due; None when none runs."""
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

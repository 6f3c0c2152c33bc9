"""The planner's reads and writes, and its lease."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from reservation_core.domain.model import Node
from reservation_core.domain.plan import Commitment, LateStart, PlannedSlot, Start, WaitEstimate, Waiting


class LostLeadershipError(Exception):
    """Another planner has taken over: forget the plan and start again as a follower."""


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
        """Become the planner if nobody is or the lease ran out; returns the new epoch, or None.

        Raises DatabaseUnavailableError where somebody who does not go on holds it up; this one is made to let go.
        """
        ...

    async def renew(self, epoch: int, ttl: timedelta) -> bool:
        """Keep the lease; false when another planner has taken over. Raises as `acquire` does."""
        ...

    async def release(self, epoch: int) -> None:
        """Let the next planner start at once."""
        ...

    async def snapshot(self, window: int, start_allowance: timedelta) -> PlanningSnapshot:
        """Nodes, open allocations and the first `window` waiting jobs of each requested type.

        Also all that have a slot or wait within a booking.
        """
        ...

    async def forget_messages(self, epoch: int, limit: int) -> int:
        """Forget the oldest well-formed messages to the planner: whatever they point to, a snapshot read later shows.

        Returns how many were forgotten, at most `limit`. Raises LostLeadershipError when the epoch is old.
        """
        ...

    async def nodes(self) -> tuple[Node, ...]:
        """Only the inventory."""
        ...

    async def changed(
        self, ids: Sequence[str], start_allowance: timedelta, slotted: Collection[str] = ()
    ) -> tuple[list[Waiting], list[Commitment]]:
        """What is now true of these reservations: waiting, holding, or (absent from both) neither.

        Of those that wait the ledger is asked only for `slotted`, which had a slot: only the planner gives them.
        """
        ...

    async def more_waiting(
        self, gpu_type: str | None, after: tuple[int, int] | None, limit: int, start_allowance: timedelta
    ) -> list[Waiting]:
        """The next waiting jobs of one requested type after (-priority, seq)."""
        ...

    async def commit(
        self, epoch: int, starts: Sequence[Start], now: datetime, handled: Sequence[int] = ()
    ) -> PlanOutcome:
        """Allocate and move to `starting`, with events and create messages; forget the `handled` messages.

        One statement. Raises LostLeadershipError when the epoch is old, CalendarConflictError when the ledger refuses.
        """
        ...

    async def commit_slots(self, epoch: int, slots: Sequence[PlannedSlot], now: datetime) -> frozenset[str]:
        """Give waiting jobs their slots in place of those they had; the first is recorded as the promise.

        One statement. Returns whose were written: others have left the line or were changed meanwhile. Raises
        LostLeadershipError when the epoch is old, CalendarConflictError when the ledger refuses.
        """
        ...

    async def record_late_starts(self, late: Sequence[LateStart], now: datetime) -> None:
        """Record `start_promise_missed` for each of these that waits past its promise, once for each promise."""
        ...

    async def publish_estimates(self, epoch: int, estimates: Sequence[WaitEstimate], now: datetime) -> None:
        """Replace what waiting jobs are told: place in line, reason, estimated start."""
        ...

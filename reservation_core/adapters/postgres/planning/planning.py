"""What the planner reads from and writes to PostgreSQL. Every write is fenced by the epoch of its lease."""

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from sqlalchemy import Row
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection import direct
from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.adapters.postgres.connection.shared_clock import SharedClock, counted_by
from reservation_core.adapters.postgres.connection.silent_sessions import row_unless_held_up
from reservation_core.adapters.postgres.jobs.reservations import LEDGER_CONSTRAINTS, violates
from reservation_core.adapters.postgres.nodes.node_links import node_links
from reservation_core.domain.clock_steps import LONGEST_LEASE
from reservation_core.domain.errors import CalendarConflictError
from reservation_core.domain.jobs.lifecycle import ALLOCATION
from reservation_core.domain.jobs.promises import SLACK
from reservation_core.domain.model import Gpu, GpuCondition, Node
from reservation_core.domain.plan import Commitment, LateStart, PlannedSlot, Start, WaitEstimate, Waiting
from reservation_core.ports.planning.planning import LostLeadershipError, PlanningSnapshot, PlanOutcome

_FIRST = (-(2**31), 0)

CLEARED = "Its slot had to make room for something that could not be put off."
"""Why a slot is later than its promise where nothing else is known."""


class Planning:
    """What the planner reads and writes; every write is fenced by the epoch."""

    def __init__(self, connection: AsyncConnection, clock: SharedClock | None = None) -> None:
        self._connection = connection
        self._clock = clock
        self._counted = counted_by(clock)

    async def acquire(self, holder: str, ttl: timedelta) -> int | None:
        """Become the planner if nobody is or the lease ran out; returns the new epoch, or None.

        Raises DatabaseUnavailableError where somebody who does not go on holds it up; this one is made to let go.
        """
        given = {
            "holder": holder,
            "ttl_s": ttl.total_seconds(),
            "longest_s": LONGEST_LEASE.total_seconds(),
            "counted": self._counted(),
        }
        found = await row_unless_held_up(self._connection, "acquire_lease", given)
        if found is None:
            return None
        if found.back_s is not None and self._clock is not None:
            off = timedelta(seconds=-found.back_s)
            await self._clock.hold_unseen(self._connection, found.epoch, off, found.record)
        return int(found.epoch)

    async def renew(self, epoch: int, ttl: timedelta) -> bool:
        """Keep the lease; false when another planner has taken over. Raises as `acquire` does."""
        given = {"epoch": epoch, "ttl_s": ttl.total_seconds(), "counted": self._counted()}
        return await row_unless_held_up(self._connection, "renew_lease", given) is not None

    async def release(self, epoch: int) -> None:
        """Let the next planner start at once."""
        await self._connection.execute(statement("release_lease"), {"epoch": epoch})

    async def snapshot(self, window: int, start_allowance: timedelta) -> PlanningSnapshot:
        """Nodes, open allocations and the first `window` waiting jobs of each requested type, in one consistent view.

        Also all that have a slot or wait within a booking.
        """
        # READ COMMITTED sees a new snapshot with every statement: what a later one sees as gone may still be in an
        # earlier one's answer. Reading the line first and the ledger last errs on the safe side.
        rows = (await self._connection.execute(statement("waiting_windows"), {"limit": window + 1})).mappings().all()
        waiting: list[Waiting] = []
        complete: set[str | None] = set()
        for gpu_type, group in groupby(rows, key=lambda row: row["gpu_type"]):
            line = [_waiting(row, start_allowance) for row in group]
            if len(line) <= window:
                complete.add(gpu_type)
            waiting += line[:window]
        apart = (await self._connection.execute(statement("waiting_apart"))).mappings()
        known = {job.id for job in waiting}
        waiting += [_waiting(row, start_allowance) for row in apart if row["id"] not in known]
        nodes = await self.nodes()
        held = await self._connection.execute(statement("open_allocations"))
        return PlanningSnapshot(
            nodes, tuple(_commitment(row) for row in held.mappings()), tuple(waiting), frozenset(complete)
        )

    async def forget_messages(self, epoch: int, limit: int) -> int:
        """Forget the oldest well-formed messages to the planner: whatever they point to, a snapshot read later shows.

        Returns how many were forgotten, at most `limit`. Raises LostLeadershipError when the epoch is old.
        """
        found = await self._connection.execute(statement("forget_messages"), {"epoch": epoch, "limit": limit})
        row = found.one()
        if not row.leads:
            raise _lost(epoch)
        return int(row.forgotten)

    async def nodes(self) -> tuple[Node, ...]:
        """Only the inventory, nodes by name and cards by index."""
        rows = await self._connection.execute(statement("planning_gpus"))
        links = await node_links(self._connection)
        return tuple(
            Node(name, tuple(_gpu(row) for row in cards), cards[0].available, cards[0].detail, links.get(name))
            for name, cards in ((name, list(group)) for name, group in groupby(rows, key=lambda row: row.node))
        )

    async def changed(
        self, ids: Sequence[str], start_allowance: timedelta, slotted: Collection[str] = ()
    ) -> tuple[list[Waiting], list[Commitment]]:
        """The present state of these reservations: waiting, holding, or (absent from both) neither.

        Of those that wait the ledger is asked only for `slotted`, which had a slot: only the planner gives them.
        """
        waiting = await direct.fetch(self._connection, "waiting_of", {"ids": list(ids)})
        line = [_waiting(row, start_allowance) for row in waiting]
        in_line = {job.id for job in line}
        others = [
            reservation_id for reservation_id in ids if reservation_id not in in_line or reservation_id in slotted
        ]
        if not others:
            return line, []  # who waits holds nothing but a slot
        held = await direct.fetch(self._connection, "open_allocations_of", {"ids": others})
        return line, [_commitment(row) for row in held]

    async def more_waiting(
        self, gpu_type: str | None, after: tuple[int, int] | None, limit: int, start_allowance: timedelta
    ) -> list[Waiting]:
        """The next waiting jobs of one requested type after (-priority, seq)."""
        after_priority, after_seq = _FIRST if after is None else after
        rows = await self._connection.execute(
            statement("more_waiting"),
            {
                "line_type": gpu_type or "",
                "after_priority": after_priority,
                "after_seq": after_seq,
                "limit": limit,
            },
        )
        return [_waiting(row, start_allowance) for row in rows.mappings()]

    async def commit(
        self, epoch: int, starts: Sequence[Start], now: datetime, handled: Sequence[int] = ()
    ) -> PlanOutcome:
        """Allocate and move to `starting`, with events and create messages; forget the `handled` messages.

        One statement. Raises LostLeadershipError when the epoch is old, CalendarConflictError when the ledger refuses.
        """
        placed = [(start.id, gpu.gpu_id, gpu.rank) for start in starts for gpu in start.gpus]
        try:
            [row] = await direct.fetch(
                self._connection,
                "commit_starts",
                {
                    "ids": [start.id for start in starts],
                    "reasons": [_allocation_detail(start) for start in starts],
                    "range_ends": [start.end for start in starts],
                    "versions": [start.version for start in starts],
                    "gpu_owners": [owner for owner, _, _ in placed],
                    "gpu_ids": [gpu_id for _, gpu_id, _ in placed],
                    "ranks": [rank for _, _, rank in placed],
                    "before": ALLOCATION.before.value,
                    "after": ALLOCATION.after.value,
                    "reason_code": ALLOCATION.reason.value,
                    "event_kind": ALLOCATION.kind,
                    "now": now,
                    "epoch": epoch,
                    "handled": list(handled),
                    "slotted": [start.id for start in starts if start.had_slot],
                    "counted": self._counted(),
                },
            )
        except IntegrityError as error:
            if violates(error, *LEDGER_CONSTRAINTS):
                raise CalendarConflictError("The ledger refused the plan: a GPU is not free. Plan again.") from error
            raise
        if row["over"]:
            if self._clock is not None:
                self._clock.doubt()
            raise CalendarConflictError("What was planned is over by now. Plan again.")
        if not row["leads"]:
            raise _lost(epoch)
        started = frozenset(row["ids"])
        expected = sum(len(start.gpus) for start in starts if start.id in started)
        if row["cards"] != expected:
            raise RuntimeError(f"{row['cards']} ledger rows were written where the plan has {expected}")
        return PlanOutcome(started)

    async def commit_slots(self, epoch: int, slots: Sequence[PlannedSlot], now: datetime) -> frozenset[str]:
        """Give waiting jobs their slots in place of those they had; the first is recorded as the promise.

        One statement. Returns whose were written: others have left the line or were changed meanwhile. Raises
        LostLeadershipError when the epoch is old, CalendarConflictError when the ledger refuses.
        """
        placed = [(slot.id, gpu.gpu_id, gpu.rank) for slot in slots for gpu in slot.gpus]
        if any(slot.gpus and slot.end <= slot.start for slot in slots):
            raise CalendarConflictError("A slot would end before it begins. Plan again.")
        try:
            [row] = await direct.fetch(
                self._connection,
                "commit_slots",
                {
                    "ids": [slot.id for slot in slots],
                    "versions": [slot.version for slot in slots],
                    "starts": [slot.start for slot in slots],
                    "ends": [slot.end for slot in slots],
                    "placed": [bool(slot.gpus) for slot in slots],
                    "becauses": [slot.because or CLEARED for slot in slots],
                    "gpu_owners": [owner for owner, _, _ in placed],
                    "gpu_ids": [gpu_id for _, gpu_id, _ in placed],
                    "ranks": [rank for _, _, rank in placed],
                    "epoch": epoch,
                    "now": now,
                    "counted": self._counted(),
                },
            )
        except IntegrityError as error:
            if violates(error, *LEDGER_CONSTRAINTS):
                raise CalendarConflictError("The ledger refused a slot: a GPU is not free then. Plan again.") from error
            raise
        if not row["leads"]:
            raise _lost(epoch)
        return frozenset(row["ids"])

    async def record_late_starts(self, late: Sequence[LateStart], now: datetime) -> None:
        """Record `start_promise_missed` for each of these that waits past its promise, once for each promise."""
        await self._connection.execute(
            statement("record_late_starts"),
            {
                "ids": [start.id for start in late],
                "becauses": [start.because for start in late],
                "lates": [json.dumps(start.late) for start in late],
                "now": now,
                "slack_s": SLACK.total_seconds(),
                "counted": self._counted(),
            },
        )

    async def publish_estimates(self, epoch: int, estimates: Sequence[WaitEstimate], now: datetime) -> None:
        """Replace what waiting jobs are told: place in line, reason, estimated start. Only changes are written."""
        await self._fence(epoch)
        await self._connection.execute(
            statement("publish_estimates"),
            {
                "ids": [e.id for e in estimates],
                "positions": [e.position for e in estimates],
                "reason_codes": [e.reason.code.value for e in estimates],
                "reasons": [e.reason.detail for e in estimates],
                "estimated": [e.estimated_start_at for e in estimates],
                "now": now,
            },
        )

    async def _fence(self, epoch: int) -> None:
        found = await self._connection.execute(statement("check_epoch"), {"epoch": epoch})
        if found.scalar_one_or_none() is None:
            raise _lost(epoch)


def _lost(epoch: int) -> LostLeadershipError:
    return LostLeadershipError(f"epoch {epoch} is over: another planner has taken the lease")


def _waiting(row: Mapping[Any, Any], start_allowance: timedelta) -> Waiting:
    return Waiting(
        id=row["id"],
        gpus=row["gpus"],
        nodes=row["nodes"],
        gpu_type=row["gpu_type"],
        length=start_allowance + timedelta(seconds=row["duration_s"]),
        priority=row["priority"],
        seq=row["seq"],
        version=row["version"],
        avoid_nodes=frozenset(row["avoid_nodes"]),
        owner=row["user_id"],
        booking_id=row["booking_id"],
        project=row["project"],
    )


def _commitment(row: Mapping[Any, Any]) -> Commitment:
    return Commitment(
        row["reservation_id"],
        row["gpu_id"],
        row["starts_at"],
        row["ends_at"],
        row["held"],
        row["planned"],
        row["booking_id"],
    )


def _gpu(row: Row[Any]) -> Gpu:
    return Gpu(row.id, row.node, row.card_index, row.gpu_type, row.uuid, row.memory_bytes, GpuCondition(row.condition))


def _allocation_detail(start: Start) -> str:
    by_node: dict[str, list[int]] = {}
    for gpu in start.gpus:
        by_node.setdefault(gpu.node, []).append(gpu.index)
    places = "; ".join(f"{node} {','.join(map(str, sorted(indices)))}" for node, indices in by_node.items())
    return f"Given GPUs {places}; its pods are being started."

"""The planner's reads and writes in PostgreSQL. The epoch of its lease fences every write."""

import json
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from sqlalchemy import RowMapping
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection import direct
from reservation_core.adapters.postgres.connection.queues import message_of
from reservation_core.adapters.postgres.connection.shared_clock import SharedClock, counted_by
from reservation_core.adapters.postgres.connection.silent_sessions import row_unless_held_up
from reservation_core.adapters.postgres.jobs.ledger_constraints import LEDGER_CONSTRAINTS, violates
from reservation_core.adapters.postgres.nodes.node_links import node_links
from reservation_core.adapters.postgres.planning.planning_rows import (
    commitment_of,
    dependant_of,
    gpu_of,
    jobs_in,
    queued_of,
    spare_of,
    waiting_of,
)
from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.domain.calendar import to_micros
from reservation_core.domain.errors import CalendarConflictError
from reservation_core.domain.jobs.lifecycle import ALLOCATION
from reservation_core.domain.jobs.promises import SLACK
from reservation_core.domain.model import Node
from reservation_core.domain.network.clock_steps import LONGEST_LEASE
from reservation_core.domain.plan import (
    Commitment,
    LateStart,
    PlannedSlot,
    PlanningSnapshot,
    Start,
    WaitEstimate,
    Waiting,
)
from reservation_core.domain.planning.run_times import OWN_ENDS, RunTime
from reservation_core.domain.planning.standings import AGEING, ALIKE, LONGEST, SECOND, Orders, standing
from reservation_core.ports.planning.planning import LostLeadershipError, PlannerNews, PlanOutcome

_FIRST = (-(2**31), 0)

MOST_DEPENDANTS = 10_000
"""So many jobs that wait for others are read at once, the first of the queue, and all with a slot; others as they
change."""

CLEARED = "Its slot had to make room for a start that could not be postponed."
"""Why a slot is later than its promise, by default."""


class Planning(StatementRunner):
    """The planner's reads and writes; the epoch fences every write."""

    def __init__(self, connection: AsyncConnection, clock: SharedClock | None = None) -> None:
        super().__init__(connection)
        self._clock = clock
        self._counted = counted_by(clock)

    async def acquire(self, holder: str, ttl: timedelta) -> int | None:
        """Acquire a free or expired lease; returns the new epoch, or None.

        Raises DatabaseUnavailableError when a stuck session blocks it; that session is terminated.
        """
        parameters = {
            "holder": holder,
            "ttl_s": ttl.total_seconds(),
            "longest_s": LONGEST_LEASE.total_seconds(),
            "counted": self._counted(),
        }
        lease = await row_unless_held_up(self._connection, "acquire_lease", parameters)
        if lease is None:
            return None
        if lease.back_s is not None and self._clock is not None:
            off = timedelta(seconds=-lease.back_s)
            await self._clock.hold_unseen(self._connection, lease.epoch, off, lease.record)
        return int(lease.epoch)

    async def renew(self, epoch: int, ttl: timedelta) -> bool:
        """Renew the lease; false when another planner has taken over. Raises as `acquire` does."""
        parameters = {"epoch": epoch, "ttl_s": ttl.total_seconds(), "counted": self._counted()}
        return await row_unless_held_up(self._connection, "renew_lease", parameters) is not None

    async def release(self, epoch: int) -> None:
        """Release the lease, so that the next planner can start at once."""
        await self._run("release_lease", epoch=epoch)

    async def snapshot(self, window: int, start_allowance: timedelta) -> PlanningSnapshot:
        """Read nodes, open allocations and the first `window` waiting jobs of every requested type.

        Jobs that have a slot or wait within a booking are always included.
        """
        # With READ COMMITTED every statement has its own snapshot. Reading the queue first and the ledger last errs on
        # the safe side: a job that has just started counts as waiting and as holding its GPUs.
        rows = (await self._run("waiting_windows", limit=window + 1)).mappings().all()
        waiting: list[Waiting] = []
        complete: set[str | None] = set()
        for gpu_type, group in groupby(rows, key=lambda row: row["gpu_type"]):
            queue = [waiting_of(row, start_allowance) for row in group]
            if len(queue) <= window:
                complete.add(gpu_type)
            waiting += queue[:window]
        apart = (await self._run("waiting_apart")).mappings()
        known = {job.id for job in waiting}
        waiting += [waiting_of(row, start_allowance) for row in apart if row["id"] not in known]
        waiting_for_others = await self._mappings("waiting_dependants", limit=MOST_DEPENDANTS)
        nodes = await self.nodes()
        commitments = tuple(commitment_of(row) for row in await self._mappings("open_allocations"))
        dependants = tuple(dependant_of(row, start_allowance) for row in waiting_for_others)
        return PlanningSnapshot(nodes, commitments, tuple(waiting), frozenset(complete), dependants)

    async def forget_messages(self, epoch: int, limit: int) -> int:
        """Drop the oldest `limit` well-formed planner messages, which a later snapshot reflects; returns their number.

        Raises LostLeadershipError when the epoch is old.
        """
        row = (await self._run("forget_messages", epoch=epoch, limit=limit)).one()
        if not row.leads:
            raise _lost(epoch)
        return int(row.forgotten)

    async def nodes(self) -> tuple[Node, ...]:
        """The inventory alone, nodes by name and GPUs by index."""
        rows = await self._run("planning_gpus")
        links = await node_links(self._connection)
        return tuple(
            Node(
                name,
                tuple(gpu_of(row) for row in cards),
                cards[0].available,
                cards[0].detail,
                links.get(name),
                cards[0].cpu_milli,
                cards[0].node_memory_bytes,
                spare_of(cards[0]),
            )
            for name, cards in ((name, list(group)) for name, group in groupby(rows, key=lambda row: row.node))
        )

    async def news(self, limit: int, start_allowance: timedelta) -> PlannerNews:
        """The oldest messages to the planner, and the waiting ones of the jobs that they name, read together.

        The messages stay: only the leader reads them, and `commit` drops those that were handled.
        """
        rows = await direct.fetch(self._connection, "planner_news", {"limit": limit})
        return PlannerNews([message_of(row) for row in rows], jobs_in(rows, start_allowance))

    async def changed(
        self,
        ids: Sequence[str],
        start_allowance: timedelta,
        slotted: Collection[str] = (),
        waiting: Sequence[Waiting] | None = None,
    ) -> tuple[Sequence[Waiting], list[Commitment]]:
        """The current state of these reservations: waiting (or for others), holding GPUs, or (in neither list) ended.

        `waiting`: those of the first kind, if they were just read. For them the ledger is read only if they are in
        `slotted`, as the planner alone assigns slots.
        """
        if waiting is None:
            waiting = jobs_in(await direct.fetch(self._connection, "waiting_of", {"ids": list(ids)}), start_allowance)
        waiting_ids = {job.id for job in waiting}
        others = [job_id for job_id in ids if job_id not in waiting_ids or job_id in slotted]
        if not others:
            return waiting, []  # a waiting job holds nothing but a slot
        held = await direct.fetch(self._connection, "open_allocations_of", {"ids": others})
        return waiting, [commitment_of(row) for row in held]

    async def undecided(
        self,
        start_allowance: timedelta,
        *,
        unpromised: int,
        slotted: int,
        dependants: int,
        others: int,
        nearest: int | None,
    ) -> tuple[PlanningSnapshot, int, Callable[[], list[Waiting]], datetime | None]:
        """A snapshot with the first `unpromised` jobs without a slot, and the last `slotted` with one.

        Of the jobs that wait for others it has the first `dependants` with a slot: what these follow makes no room.
        Also answers how many other jobs have a slot, and what makes jobs, without promises, of the first `others` rows
        with one: that takes long, and few need them. Jobs within bookings are left out. Of bookings it has the first
        `nearest` GPUs alone, None for all; the last answer is the time until which the calendar is whole, if not for
        ever.
        """
        first = await self._mappings("waiting_without_slot", limit=unpromised)
        waiting = [waiting_of(row, start_allowance) for row in first]
        # In this order, see `snapshot`: a job that has got its slot meanwhile has its rows.
        nodes = await self.nodes()
        rows, until = await self._nearest(nearest)
        slots = {row.reservation_id for row in rows if row.planned and row.booking_id is None}
        known = {job.id for job in waiting}
        last = await self._mappings("last_with_slot", limit=slotted) if slots else ()
        waiting += [waiting_of(row, start_allowance) for row in last if row["id"] not in known]
        behind = await self._mappings("dependants_with_slot", limit=dependants) if slots else ()
        chained = tuple(dependant_of(row, start_allowance) for row in behind)
        rest = len(slots - {job.id for job in (*waiting, *chained)})
        queued = (await self._run("others_with_slot", limit=others)).all() if rest and others else ()
        types = frozenset(job.gpu_type for job in waiting)
        snapshot = PlanningSnapshot(nodes, tuple(rows), tuple(waiting), types, chained)
        return snapshot, rest, lambda: [queued_of(row, start_allowance) for row in queued], until

    async def _nearest(self, nearest: int | None) -> tuple[list[Commitment], datetime | None]:
        """Open rows, and the time until which they are all."""
        if nearest is None:
            return [commitment_of(row) for row in await self._mappings("open_allocations")], None
        rows = [commitment_of(row) for row in await self._mappings("nearest_open_allocations", limit=nearest)]
        booked = [row.start for row in rows if not (row.held or row.planned or row.booking_id is not None)]
        return rows, max(booked) if len(booked) > nearest else None

    async def within(self, booking_id: str, start_allowance: timedelta, jobs: Sequence[str]) -> PlanningSnapshot:
        """The nodes of a booking's GPUs with all open rows on them, and those of these jobs that wait in it."""
        waiting, _ = await self.changed(jobs, start_allowance)
        nodes = await self.nodes()
        rows = [commitment_of(row) for row in await self._mappings("open_allocations_beside", id=booking_id)]
        gpus = {row.gpu_id for row in rows}
        own = tuple(node for node in nodes if any(gpu.id in gpus for gpu in node.gpus))
        return PlanningSnapshot(own, tuple(rows), tuple(waiting), frozenset())

    async def waiting_by_owner(
        self, job: Waiting, orders: Orders, beside: timedelta, now: datetime, *, without: str | None = None
    ) -> list[tuple[int, int, int, int]]:
        """The waiting jobs of each user that ask for the type of a job that comes now; one may be left out.

        (user id, priority, jobs, how many of these go before it). `beside` is how much longer each has its GPUs.
        """
        rows = await self._run(
            "waiting_by_owner",
            line_type=job.gpu_type or "",
            without=without or "",
            preemptible=job.preemptible,
            by_area=orders.by_area,
            others=sorted(orders.others),
            standing_s=standing(job, orders, to_micros(now)) / SECOND,
            alike_s=ALIKE / SECOND,
            ageing_s=AGEING / SECOND,
            longest_s=LONGEST / SECOND,
            beside_s=beside.total_seconds(),
            now=now,
        )
        return [(row.user_id, row.priority, row.jobs, row.ahead) for row in rows]

    async def more_waiting(
        self, gpu_type: str | None, after: tuple[int, int] | None, limit: int, start_allowance: timedelta
    ) -> list[Waiting]:
        """The next waiting jobs of one requested type after (-priority, seq)."""
        after_priority, after_seq = _FIRST if after is None else after
        rows = await self._run(
            "more_waiting", line_type=gpu_type or "", after_priority=after_priority, after_seq=after_seq, limit=limit
        )
        return [waiting_of(row, start_allowance) for row in rows.mappings()]

    async def commit(
        self, epoch: int, starts: Sequence[Start], now: datetime, handled: Sequence[int] = ()
    ) -> PlanOutcome:
        """Allocate GPUs and set `starting`, with events and create messages; drop the `handled` messages.

        One statement. Raises LostLeadershipError when the epoch is old, CalendarConflictError when a GPU is taken.
        """
        placed = [(start.id, gpu.gpu_id, gpu.rank) for start in starts for gpu in start.gpus]
        try:
            [row] = await direct.fetch(
                self._connection,
                "commit_starts",
                {
                    "ids": [start.id for start in starts],
                    "reasons": [start.detail for start in starts],
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

    async def commit_slots(
        self, epoch: int, slots: Sequence[PlannedSlot], now: datetime, planned: Sequence[PlannedSlot] = ()
    ) -> frozenset[str]:
        """Replace the slots of waiting jobs; a job's first slot comes with its promised start.

        Of those `planned` the others were refused.

        One statement. Returns the updated jobs; others have left the queue or were changed meanwhile. Raises
        LostLeadershipError when the epoch is old, CalendarConflictError when a GPU is taken.
        """
        placed = [(slot.id, gpu.gpu_id, gpu.rank) for slot in slots for gpu in slot.gpus]
        kept = {slot.id for slot in slots}
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
                    "promises": [slot.promised_at or slot.start for slot in slots],
                    "placed": [bool(slot.gpus) for slot in slots],
                    "becauses": [slot.because or CLEARED for slot in slots],
                    "follows": [slot.follows for slot in slots],
                    "refused": [slot.id for slot in planned if slot.id not in kept],
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
        """Record `start_promise_missed` for jobs that wait past their promised start, once per promise."""
        await self._run(
            "record_late_starts",
            ids=[start.id for start in late],
            becauses=[start.because for start in late],
            lates=[json.dumps(start.late) for start in late],
            now=now,
            slack_s=SLACK.total_seconds(),
            counted=self._counted(),
        )

    async def publish_estimates(self, epoch: int, estimates: Sequence[WaitEstimate], now: datetime) -> None:
        """Update place in the queue, reason, estimated and predicted start of waiting jobs. Only changes are written.

        A job's first prediction is kept beside its promised start.
        """
        await self._fence(epoch)
        await self._run(
            "publish_estimates",
            ids=[e.id for e in estimates],
            positions=[e.position for e in estimates],
            reason_codes=[e.reason.code.value for e in estimates],
            reasons=[e.reason.detail for e in estimates],
            estimated=[e.estimated_start_at for e in estimates],
            p50s=[e.p50 for e in estimates],
            p90s=[e.p90 for e in estimates],
            now=now,
        )

    async def run_times(self, since: datetime | None, limit: int) -> list[RunTime]:
        """How long jobs ran that ended after `since` (None: ever), oldest first; of the newest `limit` that ended.

        Only jobs that ended by themselves outside bookings. A job that was just ending at `since` may be missing.
        """
        rows = await self._run("run_times", since=since, limit=limit, reason_codes=sorted(OWN_ENDS))
        return [RunTime(*row) for row in rows]

    async def _mappings(self, name: str, **values: Any) -> Sequence[RowMapping]:
        # At once: one by one, thousands of rows take three times as long.
        return (await self._run(name, **values)).mappings().all()

    async def _fence(self, epoch: int) -> None:
        result = await self._run("check_epoch", epoch=epoch)
        if result.scalar_one_or_none() is None:
            raise _lost(epoch)


def _lost(epoch: int) -> LostLeadershipError:
    return LostLeadershipError(f"epoch {epoch} is over: another planner has taken the lease")

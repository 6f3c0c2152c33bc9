"""Reservations in PostgreSQL: submitting, changing and finding them. Reading for people is in `job_views`."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import groupby

from sqlalchemy import CursorResult
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection import direct
from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.adapters.postgres.connection.queues import Queue
from reservation_core.adapters.postgres.connection.shared_clock import SharedClock, counted_by
from reservation_core.adapters.postgres.history.events import ReservationEvent, record_events
from reservation_core.adapters.postgres.jobs import submissions
from reservation_core.adapters.postgres.jobs.changed_rows import changed_rows
from reservation_core.adapters.postgres.jobs.job_views import JobViews
from reservation_core.adapters.postgres.jobs.ledger_constraints import LEDGER_CONSTRAINTS, violates
from reservation_core.adapters.postgres.jobs.taken_gpus import take_gpus
from reservation_core.adapters.postgres.rows import allocated_gpu_of, reservation_of
from reservation_core.adapters.postgres.sealing import PLAIN, Sealing
from reservation_core.contracts.queue_messages import JobMessage, PodOperation
from reservation_core.domain.changes import (
    AvoidNodes,
    DecidedChange,
    DeletePods,
    MoveDeadline,
    MoveToEnd,
    Record,
    ReleaseGpus,
    Replan,
    SetRangeEnd,
    SignalPods,
    WakePlanner,
)
from reservation_core.domain.errors import CalendarConflictError
from reservation_core.domain.jobs.arrays import status_in_events
from reservation_core.domain.jobs.promises import (
    ALLOCATED_LATE,
    NEVER_STARTED,
    PODS_SLACK,
    RAN_LATE,
    SLACK,
    WaitEnd,
    end_of_wait,
)
from reservation_core.domain.model import AllocatedGpu, Reservation
from reservation_core.domain.statuses import JobStatus
from reservation_core.ports.jobs.reservations import NewReservation, Refusal, Submitted
from reservation_core.ports.queues import QueueName


class WriteConflictError(RuntimeError):
    """Fewer rows were written than decided: somebody changed one between reading and writing. Read again."""


class Reservations(JobViews):
    """Reservations, their life and their allocations."""

    def __init__(
        self, connection: AsyncConnection, queue: Queue, clock: SharedClock | None = None, sealing: Sealing = PLAIN
    ) -> None:
        super().__init__(connection, sealing)
        self._connection = connection
        self._queue = queue
        self._counted = counted_by(clock)

    async def submit(self, batch: Sequence[NewReservation], now: datetime) -> list[Submitted]:
        """Store a batch with its events and messages in one statement; answers in the order given.

        Then look up what repeated Idempotency-Keys were answered with.
        """
        return await submissions.store(self._connection, batch, now, self._sealing)

    async def refusal_of(self, new: NewReservation) -> Refusal | None:
        """Why `submit` would refuse a job without an Idempotency-Key; None if it would not."""
        return await submissions.refusal_of(self._connection, new)

    async def lock(self, ids: Sequence[str]) -> dict[str, Reservation]:
        """Read and lock rows (in id order) until the transaction ends; unknown ids are left out."""
        found = await self._connection.execute(statement("lock_reservations"), {"ids": list(ids)})
        return {row["id"]: reservation_of(row, self._sealing) for row in found.mappings()}

    async def get(self, ids: Sequence[str]) -> dict[str, Reservation]:
        """Read rows without locking."""
        found = await direct.fetch(self._connection, "get_reservations", {"ids": list(ids)})
        return {row["id"]: reservation_of(row, self._sealing) for row in found}

    async def allocations(self, ids: Sequence[str]) -> dict[str, tuple[AllocatedGpu, ...]]:
        """The GPUs of each reservation's newest attempt (released ones too), by rank and index."""
        found = await direct.fetch(self._connection, "reservation_allocations", {"ids": list(ids)})
        return {
            reservation_id: tuple(allocated_gpu_of(row) for row in rows)
            for reservation_id, rows in groupby(found, key=lambda row: row["reservation_id"])
        }

    async def last_released(self, ids: Sequence[str]) -> dict[str, datetime]:
        """When the attempt before each reservation's newest one gave its GPUs back, so that it waited again."""
        found = await direct.fetch(self._connection, "last_released", {"ids": list(ids)})
        return {row["reservation_id"]: row["released_at"] for row in found}

    async def apply(self, changes: Sequence[DecidedChange]) -> None:
        """Write what `lifecycle.transition` decided: rows first, then the ledger, the record and the messages.

        Raises CalendarConflictError when an extension meets somebody else's range, or taken cards are another's, and
        UnknownGpuError when a taken card is not in the inventory.
        """
        if not changes:
            return
        await self._update_rows(changes)
        await self._update_ledger(changes)
        await self._record(changes)
        await self._send(changes)

    async def unsettle(self, ids: Sequence[str], until: datetime) -> dict[str, datetime | None]:
        """Note until when pods of these may come to be that were asked for and not answered.

        Answers what was noted before. Call it under their pod locks.
        """
        parameters = {"ids": list(ids), "until": until}
        found = await self._connection.execute(statement("unsettle_reservations"), parameters)
        return {row.id: row.former for row in found}

    async def settle(self, former: Mapping[str, datetime | None]) -> None:
        """All was answered since that was noted: it is as it was before."""
        parameters = {"ids": list(former), "untils": list(former.values())}
        await self._connection.execute(statement("settle_reservations"), parameters)

    async def _update_rows(self, changes: Sequence[DecidedChange]) -> None:
        result = await self._connection.execute(
            statement("update_reservations"),
            changed_rows(changes),
        )
        _assert_count(result, len(changes))
        await self._record_missed_starts(changes)
        left_line = [
            c.after.id
            for c in changes
            if c.before.status is JobStatus.QUEUED and c.after.status is not JobStatus.QUEUED
        ]
        planned_anew = [c.after.id for c in changes for e in c.effects if isinstance(e, Replan)]
        # A retry waits anew: its promise was kept, or missed, by the run before.
        planned_anew += [c.after.id for c in changes if _runs_again(c)]
        if left_line or planned_anew:
            await self._connection.execute(
                statement("forget_waiting"), {"ids": left_line + planned_anew, "anew": planned_anew}
            )
        back_in_line = {
            c.after.user_id
            for c in changes
            if c.before.status is not JobStatus.QUEUED and c.after.status is JobStatus.QUEUED
        }
        if back_in_line:
            await self._connection.execute(statement("unsettle_users"), {"ids": sorted(back_in_line)})

    async def _record_missed_starts(self, changes: Sequence[DecidedChange]) -> None:
        """Call it before promises are forgotten: an extension does not undo that the start is late already."""
        ends = [end for change in changes if (end := end_of_wait(change)) is not None]
        anew = [c for c in changes for e in c.effects if isinstance(e, Replan)]
        ends += [WaitEnd(change.after.id, change.at, started=False) for change in anew]
        if ends:
            await self._connection.execute(
                statement("record_missed_starts"),
                {
                    "ids": [end.id for end in ends],
                    "ats": [end.at for end in ends],
                    "starteds": [end.started for end in ends],
                    "now": changes[0].at,
                    "slack_s": SLACK.total_seconds(),
                    "pods_slack_s": PODS_SLACK.total_seconds(),
                    "given_late": ALLOCATED_LATE,
                    "ran_late": RAN_LATE,
                    "never_started": NEVER_STARTED,
                },
            )

    async def _update_ledger(self, changes: Sequence[DecidedChange]) -> None:
        ends = [(c, e.to) for c in changes for e in c.effects if isinstance(e, SetRangeEnd)]
        # Only what ends later can meet somebody: what is shortened needs no way back.
        longer = [end for end in ends if end[0].before.range_end is not None and end[1] > end[0].before.range_end]
        shorter = [end for end in ends if end not in longer]
        if shorter:
            await self._move_range_ends(shorter)
        if longer:
            await self._lengthen(longer)
        failed_there = [c.after.id for c in changes for e in c.effects if isinstance(e, AvoidNodes)]
        if failed_there:
            await self._connection.execute(statement("avoid_nodes"), {"ids": failed_there})
        released = [(c.after.id, e.ran_from) for c in changes for e in c.effects if isinstance(e, ReleaseGpus)]
        if released:
            ids, ran_froms = zip(*released, strict=True)
            parameters = {"ids": list(ids), "ran_froms": list(ran_froms), "counted": self._counted()}
            await self._connection.execute(statement("release_allocations"), parameters)
        if last := [c.after.id for c in changes if any(isinstance(e, MoveToEnd) for e in c.effects)]:
            await self._connection.execute(statement("move_to_end"), {"ids": last})
        await take_gpus(self._connection, changes, self._counted())

    async def _move_range_ends(self, ends: Sequence[tuple[DecidedChange, datetime]]) -> None:
        await self._connection.execute(
            statement("move_range_ends"),
            {
                "ids": [c.after.id for c, _ in ends],
                "range_ends": [to for _, to in ends],
                "counted": self._counted(),
            },
        )

    async def _lengthen(self, ends: Sequence[tuple[DecidedChange, datetime]]) -> None:
        try:
            async with self._connection.begin_nested():
                await self._move_range_ends(ends)
        except IntegrityError as error:
            if not violates(error, *LEDGER_CONSTRAINTS):
                raise
            raise await self._who_is_in_the_way(ends) from error

    async def _who_is_in_the_way(self, ends: Sequence[tuple[DecidedChange, datetime]]) -> CalendarConflictError:
        """Find the range that the first of these would meet, from when on, and what to do."""
        found = await self._connection.execute(
            statement("in_the_way"),
            {"ids": [c.after.id for c, _ in ends], "range_ends": [to for _, to in ends]},
        )
        row = found.first()
        if row is None:  # it went in this moment
            return CalendarConflictError("What it has was promised to another job a moment ago. Try again.")
        since = f"{row.starts_at:%Y-%m-%dT%H:%M:%SZ}"
        match row.what:
            case "outside":
                return CalendarConflictError(
                    f"Its booking {row.id} ends at {since}: a job in it can't last longer. Extend the booking first."
                )
            case "place":
                return CalendarConflictError(
                    f"Its node has promised CPUs and memory from {since} on to other jobs. Extend by less, or submit "
                    "a new job for the rest."
                )
            case "planned":
                how = "promised to {}, which waits for them,"
            case "maintenance":
                how = f"in maintenance ({row.id})"
            case _:
                how = "given to {}"
        named, nameless = (
            f"These GPUs are {how.format(whom)} from {since} on. Extend by less, or submit a new job for the rest."
            for whom in (f"{row.id} of {row.user_name}", "somebody else")
        )
        return CalendarConflictError(named, nameless, row.user_id)

    async def _record(self, changes: Sequence[DecidedChange]) -> None:
        lines = []
        for change in changes:
            (before, _), (after, reason_after) = status_in_events(change.before), status_in_events(change.after)
            for effect in change.effects:
                if isinstance(effect, Record):
                    reason = effect.reason or reason_after
                    lines.append(
                        ReservationEvent(
                            change.after.id,
                            change.at,
                            effect.actor,
                            effect.kind,
                            before.value,
                            after.value,
                            reason.code.value,
                            reason.detail,
                            effect.data,
                        )
                    )
        await record_events(self._connection, lines)

    async def _send(self, changes: Sequence[DecidedChange]) -> None:
        operations = []
        looks = []
        for change in changes:
            kinds = {type(effect) for effect in change.effects}
            row = change.after
            if DeletePods in kinds:
                operations.append(PodOperation(op="delete", id=row.id, attempt=row.attempt).model_dump())
            elif MoveDeadline in kinds:
                operations.append(PodOperation(op="deadline", id=row.id, attempt=row.attempt).model_dump())
            if SignalPods in kinds:
                operations.append(PodOperation(op="signal", id=row.id, attempt=row.attempt).model_dump())
            if WakePlanner in kinds:
                looks.append(JobMessage(kind="changed", id=row.id).model_dump())
        await self._queue.send(QueueName.POD_OPERATIONS, operations)
        await self._queue.send(QueueName.GPU_JOBS, looks)

    async def due(self, now: datetime, limit: int) -> list[str]:
        """Running past their end."""
        found = await self._connection.execute(statement("due_reservations"), {"now": now, "limit": limit})
        return [row.id for row in found]

    async def next_end(self) -> datetime | None:
        """When the next of those that run has to end, in the past while it is due; None when none runs."""
        [row] = await direct.fetch(self._connection, "next_end", {})
        ends_at: datetime | None = row["ends_at"]
        return ends_at

    async def warnable(self, now: datetime, thresholds_s: Sequence[int], limit: int) -> list[str]:
        """Running, with a warning due that was not given yet."""
        if not thresholds_s:
            return []
        found = await self._connection.execute(
            statement("warnable_reservations"),
            {
                "now": now,
                "thresholds": list(thresholds_s),
                "farthest_s": float(max(thresholds_s)),
                "limit": limit,
            },
        )
        return [row.id for row in found]

    async def stuck(self, *, starting_before: datetime, ending_before: datetime, limit: int) -> list[str]:
        """Starting since before the one time, or ending since before the other: the oldest `limit` of each."""
        found = await self._connection.execute(
            statement("stuck_reservations"),
            {"starting_before": starting_before, "ending_before": ending_before, "limit": limit},
        )
        return [row.id for row in found]

    async def live(self) -> list[Reservation]:
        """All that may have pods: starting, running, ending."""
        found = await self._connection.execute(statement("live_reservations"))
        return [reservation_of(row, self._sealing) for row in found.mappings()]

    async def resend(self, ids: Sequence[str]) -> int:
        """Send the pod operation that fits each row's state again (create while starting, delete while ending).

        Nothing is sent that waits in the queue already. Returns how many messages were sent.
        """
        if not ids:
            return 0
        sent = await self._connection.execute(statement("resend_pod_operations"), {"ids": list(ids)})
        return len(sent.all())


def _runs_again(change: DecidedChange) -> bool:
    before, after = change.before, change.after
    return after.retried > before.retried or after.preemption.times > before.preemption.times


def _assert_count(result: CursorResult[object], expected: int) -> None:
    if result.rowcount != expected:
        raise WriteConflictError(f"{result.rowcount} of {expected} reservations were still as they were read")

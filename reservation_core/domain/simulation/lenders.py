"""Preemptible jobs in virtual time: they have GPUs until others need them, and wait again.

What a job does when it is asked, and how long it keeps its GPUs for sure, is the product's own. Which jobs are asked,
and which ranges are renewed, is said here a second time: the product says it in `leases.sql`. Nothing reads a range
between two things that happen, so it is renewed once, to where many renewals would have brought it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from reservation_core.domain.calendar import to_moment
from reservation_core.domain.jobs.preemption import RENEWED_EVERY, gpus_needed, lease_end, needs_of
from reservation_core.domain.model import PodWorkload, Preemption, Reason, Reservation
from reservation_core.domain.plan import Commitment, Start, Waiting
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.statuses import JobStatus, ReasonCode, ReservationKind

START_ALLOWANCE = timedelta(seconds=120)
"""A preemptible job starts where GPUs are free for so much longer than it keeps them, as by default."""

TURNAROUND = timedelta(seconds=10)
"""So long a job that was asked has its GPUs when its time is over: all of the grace that is the default."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class _Attempt:
    """A job that has GPUs until `until`, when it ends by itself or they are given back; `row` is as the product's."""

    row: Reservation
    gpu_ids: tuple[int, ...]
    until: datetime
    range_end: datetime


class Lenders:
    """The preemptible jobs of a replay that have GPUs; `picture` is the planner's."""

    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        self._attempts: dict[str, _Attempt] = {}

    def start(self, job: Waiting, terms: Preemption, start: Start, ran: timedelta) -> datetime:
        """Note a start; answers when the job ends if nobody needs its GPUs. `job.length` is what it asked for."""
        row = replace(_row(job, terms, start.start), ends_at=start.start + job.length)
        until = start.start + min(ran, job.length)
        gpu_ids = tuple(gpu.gpu_id for gpu in start.gpus)
        attempt = _Attempt(row, gpu_ids, until, lease_end(row, start.start, TURNAROUND))
        self._attempts[job.id] = attempt
        self._tell(attempt)
        return until

    def ends(self, job_id: str, at: datetime) -> bool:
        """Whether the job's attempt ends then: it may have become earlier, or another's time."""
        attempt = self._attempts.get(job_id)
        return attempt is not None and attempt.until == at

    def end(self, job_id: str) -> bool:
        """Note an end; true when the job waits again."""
        return self._attempts.pop(job_id).row.preemption.asked_at is not None

    def renew(self, now: datetime) -> None:
        """Renew the ranges of those whose GPUs nobody has next, as `renew_leases` would have since the last time."""
        for attempt in self._attempts.values():
            row = attempt.row
            ahead = now + row.preemption.lead + needs_of(TURNAROUND)
            if row.preemption.asked_at is not None or attempt.range_end >= ahead - RENEWED_EVERY:
                continue
            following = self._next_use(attempt)
            last = ahead if following is None else min(ahead, following)
            until = last - (last - _EPOCH) % RENEWED_EVERY
            until = until if row.ends_at is None else min(until, row.ends_at + TURNAROUND)
            if until > attempt.range_end:
                attempt.range_end = until
                self._tell(attempt)

    def ask(self, now: datetime) -> Iterator[tuple[str, datetime]]:
        """Ask those whose GPUs others need, and end those whose time since is over: which, and when they are gone."""
        for job_id, attempt in self._attempts.items():
            due = self._due(attempt)
            while due is not None and due <= now and attempt.row.status is JobStatus.RUNNING:
                attempt.row, _ = gpus_needed(attempt.row, now, None)
                due = self._due(attempt)
            if attempt.row.status is JobStatus.ENDING and now + TURNAROUND < attempt.until:
                attempt.until = now + TURNAROUND
                yield job_id, attempt.until

    def next_look(self) -> datetime | None:
        """When the next is asked or ended, as things are."""
        dues = (self._due(attempt) for attempt in self._attempts.values())
        return min((due for due in dues if due is not None), default=None)

    def _due(self, attempt: _Attempt) -> datetime | None:
        """As `gpus_needed` in `leases.sql` has it."""
        row, terms = attempt.row, attempt.row.preemption
        if row.status is not JobStatus.RUNNING:
            return None
        if terms.asked_at is not None:
            return terms.asked_at if terms.signalled_at is None else terms.signalled_at + terms.lead
        following = self._next_use(attempt)
        if following is None or row.started_at is None:
            return None
        return max(row.started_at + terms.min_runtime, following - terms.lead - needs_of(TURNAROUND))

    def _next_use(self, attempt: _Attempt) -> datetime | None:
        """When the first of others has any of its GPUs."""
        calendars = [self._picture.ledger.calendars[gpu_id] for gpu_id in attempt.gpu_ids]
        starts = [start for calendar in calendars for start, _, _, owner in calendar.rows if owner != attempt.row.id]
        return to_moment(min(starts)) if starts else None

    def _tell(self, attempt: _Attempt) -> None:
        row = attempt.row
        begun = row.started_at or row.created_at
        rows = [
            Commitment(row.id, gpu_id, begun, attempt.range_end, True, preemptible=True) for gpu_id in attempt.gpu_ids
        ]
        self._picture.set_reservation(row.id, None, rows)


def as_planned(job: Waiting, terms: Preemption) -> Waiting:
    """A job of a trace as the planner sees it: a preemptible one needs GPUs for what it keeps for sure."""
    if not terms.preemptible:
        return job
    kept = lease_end(_row(job, terms, _EPOCH), _EPOCH, START_ALLOWANCE + TURNAROUND) - _EPOCH
    return replace(job, length=kept, preemptible=True)


def _row(job: Waiting, terms: Preemption, started_at: datetime) -> Reservation:
    """What the rules of preemption read of a running job."""
    return Reservation(
        id=job.id,
        seq=job.seq,
        kind=ReservationKind.JOB,
        user_id=job.owner,
        user="",
        name=None,
        status=JobStatus.RUNNING,
        reason=Reason(ReasonCode.RUNNING, ""),
        gpus=job.gpus,
        gpu_type=job.gpu_type,
        nodes=job.nodes,
        duration=job.length,
        priority=job.priority,
        workload=PodWorkload(()),
        created_at=started_at,
        version=0,
        started_at=started_at,
        preemption=terms,
    )

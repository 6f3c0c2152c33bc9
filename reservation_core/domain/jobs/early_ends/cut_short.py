"""Jobs that end early because their GPUs are taken away: their booking is over, or maintenance begins."""

from dataclasses import replace
from datetime import datetime
from typing import assert_never

from reservation_core.domain.changes import (
    BookingOver,
    Decision,
    DeletePods,
    DrainBefore,
    MoveDeadline,
    Record,
    SetRangeEnd,
    WakePlanner,
)
from reservation_core.domain.event_kinds import JobEventKind
from reservation_core.domain.jobs.preemption import end_for_maintenance, waits_after_maintenance
from reservation_core.domain.jobs.retries import is_retried
from reservation_core.domain.model import Reason, Reservation
from reservation_core.domain.statuses import FINAL_STATUSES, JobStatus, ReasonCode


def booking_over(reservation: Reservation, event: BookingOver, now: datetime) -> Decision:
    """End a job in a booking that is over; its range ends now, so that the booking's can."""
    if reservation.status in FINAL_STATUSES:
        return reservation, ()
    record = Record(JobEventKind.BOOKING_OVER, event.actor)
    if reservation.status is JobStatus.QUEUED:
        after = replace(reservation, status=event.outcome, reason=event.reason, finished_at=now)
        return after, (WakePlanner(), record)
    after, cut = _range_until(reservation, now)
    if reservation.status is JobStatus.ENDING:
        if reservation.outcome is JobStatus.QUEUED or is_retried(reservation):
            return replace(after, outcome=event.outcome, reason=event.reason), (*cut, record)
        return after, cut
    after = replace(_ends_now(after, now), outcome=event.outcome, reason=event.reason)
    return after, (*cut, DeletePods(), record)


def drain_before(reservation: Reservation, event: DrainBefore, now: datetime) -> Decision:
    """End a job early enough for its pods to be gone at `event.at`, or at once if that is too near.

    A starting job that can't run first is requeued.
    """
    if reservation.range_end is None or reservation.range_end <= event.at:
        return reservation, ()
    match reservation.status:
        case JobStatus.STARTING | JobStatus.RUNNING:
            last = event.at - event.grace
            if last > now:
                return _run_until(reservation, event, last)
            return _end_now(reservation, event, now)
        case JobStatus.ENDING:
            return _range_until(reservation, max(event.at, now))
        case JobStatus.QUEUED | JobStatus.SUCCEEDED | JobStatus.FAILED | JobStatus.CANCELLED | JobStatus.EXPIRED:
            return reservation, ()
        case _:
            assert_never(reservation.status)


def _run_until(reservation: Reservation, event: DrainBefore, last: datetime) -> Decision:
    ends_at = None if reservation.ends_at is None else min(reservation.ends_at, last)
    reason = reservation.reason
    # A job that was asked for its GPUs ends for that: its reason says where in the queue it waits again.
    if ends_at is not None and reservation.preemption.asked_at is None:
        detail = f"Running until {ends_at:%Y-%m-%dT%H:%M:%SZ} at the latest. {event.why}"
        reason = Reason(ReasonCode.MAINTENANCE, detail)
    # The end has moved, so its warnings are due again.
    after = replace(reservation, range_end=event.at, ends_at=ends_at, reason=reason, warned_s=None)
    record = _record(event, last)
    return after, (SetRangeEnd(event.at), MoveDeadline(), WakePlanner(), record)


def _end_now(reservation: Reservation, event: DrainBefore, now: datetime) -> Decision:
    after, cut = _range_until(reservation, max(event.at, now))
    if reservation.status is JobStatus.STARTING:
        detail = f"{event.why} It goes back to its place in the queue; there is nothing to do."
        after = replace(after, outcome=JobStatus.QUEUED, reason=Reason(ReasonCode.REQUEUED, detail))
    elif waits_after_maintenance(reservation):
        after, effects = end_for_maintenance(after, now)
        return _ends_now(after, now), (*cut, *effects, _record(event, now))
    else:
        detail = f"{event.why} It was ended for that; submit it again."
        after = replace(after, outcome=JobStatus.EXPIRED, reason=Reason(ReasonCode.MAINTENANCE, detail))
    return _ends_now(after, now), (*cut, DeletePods(), _record(event, now))


def _record(event: DrainBefore, last: datetime) -> Record:
    """The audit log's line: the window, and when the job ends."""
    times = {"starts_at": event.at.isoformat(), "ends_at": event.until.isoformat(), "job_ends_by": last.isoformat()}
    return Record(JobEventKind.MAINTENANCE_AFFECTS, event.actor, {"why": event.why, **times})


def _ends_now(reservation: Reservation, now: datetime) -> Reservation:
    """Set the end to now: how the pods end afterwards is our doing."""
    ends_at = None if reservation.ends_at is None else min(reservation.ends_at, now)
    return replace(reservation, status=JobStatus.ENDING, ends_at=ends_at)


def _range_until(reservation: Reservation, at: datetime) -> Decision:
    """Shorten the range, even if a pod may still run: the next holder waits for it visibly."""
    if reservation.range_end is None or reservation.range_end <= at:
        return reservation, ()
    return replace(reservation, range_end=at), (SetRangeEnd(at), WakePlanner())

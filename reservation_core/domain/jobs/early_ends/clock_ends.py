"""What the clock does to a running job: it warns of its end, and ends it."""

from dataclasses import replace
from datetime import datetime

from reservation_core.domain.changes import Decision, DeletePods, Record, WarningDue
from reservation_core.domain.event_kinds import JobEventKind
from reservation_core.domain.jobs.preemption import end_for_maintenance, waits_after_maintenance
from reservation_core.domain.model import Reason, Reservation
from reservation_core.domain.short_durations import in_words, written
from reservation_core.domain.statuses import JobStatus, ReasonCode


def expire(reservation: Reservation, now: datetime) -> Decision:
    """End a job whose time is over."""
    if reservation.status is not JobStatus.RUNNING or reservation.ends_at is None or now < reservation.ends_at:
        return reservation, ()
    is_cut = reservation.started_at is not None and now < reservation.started_at + reservation.duration
    if is_cut and waits_after_maintenance(reservation):
        return end_for_maintenance(reservation, now)
    after = replace(reservation, status=JobStatus.ENDING, outcome=JobStatus.EXPIRED, reason=reason_at_end(reservation))
    return after, (DeletePods(), Record(JobEventKind.END_REACHED))


def reason_at_end(reservation: Reservation) -> Reason:
    """Why a running job ends at its end: its time is over, or maintenance has made it shorter."""
    if reservation.reason.code is ReasonCode.MAINTENANCE:
        detail = "Maintenance needed its GPUs before its time was over. It was ended for that."
        return Reason(ReasonCode.MAINTENANCE, detail)
    detail = (
        f"The job reached its end after {in_words(reservation.duration)}. Extend a job in time with `gpu-dev extend`."
    )
    return Reason(ReasonCode.DURATION_REACHED, detail)


def end_left_alone(reservation: Reservation) -> Decision:
    """End a session that nobody was connected to for so long as it allows."""
    if reservation.status is not JobStatus.RUNNING or reservation.inactivity is None:
        return reservation, ()
    detail = (
        f"Nobody was connected for {written(reservation.inactivity)}. Next time stay connected, or allow more with"
        " --inactivity."
    )
    after = replace(
        reservation,
        status=JobStatus.ENDING,
        outcome=JobStatus.EXPIRED,
        reason=Reason(ReasonCode.INACTIVE, detail),
    )
    return after, (DeletePods(), Record(JobEventKind.END_REACHED))


def warn_of_end(reservation: Reservation, event: WarningDue, now: datetime) -> Decision:
    """Note that the end is near, once for each warning."""
    if reservation.status is not JobStatus.RUNNING or reservation.ends_at is None:
        return reservation, ()
    if reservation.warned_s is not None and reservation.warned_s <= event.before_s:
        return reservation, ()
    left = int((reservation.ends_at - now).total_seconds())
    if left > event.before_s:
        return reservation, ()
    data = {"ends_at": reservation.ends_at.isoformat(), "seconds_left": max(left, 0)}
    return replace(reservation, warned_s=event.before_s), (Record(JobEventKind.END_WARNING, data=data),)

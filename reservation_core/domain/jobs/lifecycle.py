"""The life of a reservation: which events move it where, and what has to be done about it (see `changes`).

`queued → starting → running → ending → succeeded | failed | cancelled | expired`; what could not start goes back from
`ending` to `queued` (see `starts`).

`transition` is the only place where a status changes. It decides; use cases carry the effects out. What the cluster
or the clock reports late, twice or out of order changes nothing (no effects); a vain request is a typed error. GPUs go
back only on `PodsGone`: an allocation is closed when its pods are known to be gone, not when that was asked for.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import assert_never

from reservation_core.domain.changes import (
    Adopted,
    AvoidNodes,
    BookingOver,
    CancelRequested,
    DecidedChange,
    DeletePods,
    DrainBefore,
    Effect,
    EndReached,
    Event,
    ExtendRequested,
    MoveDeadline,
    NodeFenced,
    PlanAnew,
    PodsFinished,
    PodsGone,
    PodsLost,
    PodsRunning,
    Record,
    ReleaseGpus,
    SetRangeEnd,
    StartDelayed,
    StartFailed,
    StartRefused,
    StartTimedOut,
    WakePlanner,
    WarningDue,
)
from reservation_core.domain.errors import AlreadyFinalError, LimitExceededError, NotExtendableError
from reservation_core.domain.event_kinds import JobEventKind
from reservation_core.domain.jobs.adoption import adopted
from reservation_core.domain.jobs.cut_short import booking_over, drain_before
from reservation_core.domain.jobs.starts import TAKEN_AWAY, TOO_LATE, queued_again, taken_back, timed_out
from reservation_core.domain.model import FINAL_STATUSES, JobStatus, Reason, ReasonCode, Reservation


@dataclass(frozen=True, slots=True)
class BulkTransition:
    """A transition that a batch statement makes for many rows at once: the statement takes its words from here."""

    before: JobStatus
    after: JobStatus
    reason: ReasonCode
    kind: JobEventKind


ALLOCATION = BulkTransition(JobStatus.QUEUED, JobStatus.STARTING, ReasonCode.ALLOCATED, JobEventKind.ALLOCATED)
"""The planner's transition. It also counts `attempt` up and sets `range_end`."""


def transition(reservation: Reservation, event: Event, now: datetime) -> tuple[Reservation, tuple[Effect, ...]]:
    """Decide what an event does to a reservation.

    Returns the reservation afterwards and the effects to carry out; the same reservation and no effects when the event
    says nothing new. Raises AlreadyFinalError, NotExtendableError or LimitExceededError for what a user asks in vain.
    """
    match event:
        case PodsRunning() | PodsFinished() | PodsLost() | PodsGone():
            return _of_pods(reservation, event, now)
        case StartRefused() | StartDelayed() | StartFailed() | StartTimedOut():
            return _of_start(reservation, event)
        case EndReached():
            return _end_reached(reservation, now)
        case WarningDue():
            return _warn(reservation, event, now)
        case CancelRequested():
            return _cancel(reservation, event, now)
        case ExtendRequested():
            return _extend(reservation, event)
        case NodeFenced():
            return _fenced(reservation, event)
        case Adopted():
            return adopted(reservation, event)
        case BookingOver():
            return booking_over(reservation, event, now)
        case DrainBefore():
            return drain_before(reservation, event, now)
        case _:
            assert_never(event)


def decide(reservation: Reservation, event: Event, now: datetime) -> DecidedChange | None:
    """Like `transition`, as a change to write; None when there is nothing to do."""
    after, effects = transition(reservation, event, now)
    if after is reservation and not effects:
        return None
    return DecidedChange(reservation, after, effects, now)


def _of_pods(
    reservation: Reservation, event: PodsRunning | PodsFinished | PodsLost | PodsGone, now: datetime
) -> tuple[Reservation, tuple[Effect, ...]]:
    match event:
        case PodsRunning():
            return _running(reservation, event, now)
        case PodsFinished():
            return _finished(reservation, event, now)
        case PodsLost():
            return _broken(reservation, Reason(event.code, event.detail), JobEventKind.POD_LOST)
        case PodsGone():
            return _gone(reservation, now)
        case _:
            assert_never(event)


def _of_start(
    reservation: Reservation, event: StartRefused | StartDelayed | StartFailed | StartTimedOut
) -> tuple[Reservation, tuple[Effect, ...]]:
    if reservation.status is not JobStatus.STARTING:
        return reservation, ()
    match event:
        case StartRefused():
            return _broken(reservation, event.reason, JobEventKind.START_FAILED)
        case StartDelayed():
            return _delayed(reservation, event)
        case StartFailed():
            return _take_back(reservation, event.reason, event.max_starts, JobEventKind.START_FAILED)
        case StartTimedOut():
            cause = timed_out(reservation, int(event.allowance.total_seconds()))
            return _take_back(reservation, cause, event.max_starts, JobEventKind.START_TIMED_OUT)
        case _:
            assert_never(event)


def _running(reservation: Reservation, event: PodsRunning, now: datetime) -> tuple[Reservation, tuple[Effect, ...]]:
    started_at = min(event.at, now)
    if reservation.outcome is JobStatus.QUEUED and reservation.started_at is None:
        # It was taken back, and yet it runs: its pods are being ended, and it will not wait again (see `_gone`).
        return replace(reservation, started_at=started_at), (Record(JobEventKind.STARTED_LATE),)
    if reservation.status is not JobStatus.STARTING:
        return reservation, ()
    ends_at = started_at + reservation.duration
    range_end = ends_at + event.turnaround
    if reservation.range_end is not None:
        # What follows begins when the range is over: by then the pods have to be gone.
        in_time = reservation.range_end - event.turnaround
        ends_at = min(ends_at, in_time if in_time > started_at else reservation.range_end)
        range_end = min(range_end, reservation.range_end)
    after = replace(
        reservation,
        status=JobStatus.RUNNING,
        reason=Reason(ReasonCode.RUNNING, f"Running until {ends_at:%Y-%m-%dT%H:%M:%SZ} at the latest."),
        started_at=started_at,
        ends_at=ends_at,
        range_end=range_end,
    )
    # What the start did not need goes back to the calendar, and the planner may have a use for it.
    return after, (SetRangeEnd(range_end), WakePlanner(), Record(JobEventKind.STARTED))


def _finished(reservation: Reservation, event: PodsFinished, now: datetime) -> tuple[Reservation, tuple[Effect, ...]]:
    if reservation.status is JobStatus.ENDING:
        return _finished_while_ending(reservation, event, now)
    if reservation.status not in (JobStatus.STARTING, JobStatus.RUNNING):
        return reservation, ()
    outcome, reason = _outcome(event)
    # What never ran has no start: it would count as a run of no length.
    began = None if reason.code is ReasonCode.START_FAILED else event.started_at
    after = replace(
        reservation,
        status=JobStatus.ENDING,
        outcome=outcome,
        reason=reason,
        exit_code=event.exit_code,
        started_at=reservation.started_at or began,
    )
    return after, (DeletePods(), Record(JobEventKind.FINISHED, data={"exit_code": event.exit_code}))


def _finished_while_ending(
    reservation: Reservation, event: PodsFinished, now: datetime
) -> tuple[Reservation, tuple[Effect, ...]]:
    if reservation.exit_code is not None or event.exit_code is None:
        return reservation, ()
    outcome, reason = _outcome(event)
    if reservation.outcome is JobStatus.QUEUED:
        # It was taken back, and yet it ran. A gang's work is all its pods'.
        if reservation.nodes > 1 or (outcome is not JobStatus.SUCCEEDED and event.started_at is None):
            return reservation, ()
        if outcome is not JobStatus.SUCCEEDED:
            return _running(reservation, PodsRunning(event.started_at or now), now)
        after = replace(reservation, outcome=outcome, reason=reason)
        after = replace(after, started_at=reservation.started_at or event.started_at)
    elif (
        reservation.outcome is JobStatus.EXPIRED
        and _was_over_in_time(reservation, event)
        # What was taken away while ending was taken away by us.
        and reason.code not in TAKEN_AWAY
    ):
        # It was over before its end; only nobody had looked before the clock did.
        after = replace(reservation, outcome=outcome, reason=reason)
    else:
        after = reservation
    after = replace(after, exit_code=event.exit_code)
    return after, (Record(JobEventKind.EXITED, data={"exit_code": event.exit_code}),)


def _was_over_in_time(reservation: Reservation, event: PodsFinished) -> bool:
    """Whether pods were over before their end. Some clusters tell whole seconds: within one, nothing comes before.

    For how long they ran says more than when they ended: their node's clock may differ from ours, and ours may have
    been set meanwhile. But what a signal ended after their end was ended by us, however short it was.
    """
    if reservation.ends_at is None:
        return False
    end = reservation.ends_at if event.at.microsecond else reservation.ends_at.replace(microsecond=0)
    if event.ran is None or reservation.started_at is None:
        return event.at < end
    cut = timedelta(0) if event.ran.microseconds else timedelta(microseconds=999_999)
    by_signal = event.exit_code is not None and event.exit_code > 128
    return event.ran + cut < reservation.ends_at - reservation.started_at and (event.at < end or not by_signal)


def _outcome(event: PodsFinished) -> tuple[JobStatus, Reason]:
    command = "The command" if event.pod is None else f"The command of pod {event.pod}"
    if event.reason is not None:
        expired = event.reason.code is ReasonCode.DURATION_REACHED
        return (JobStatus.EXPIRED if expired else JobStatus.FAILED), event.reason
    if event.exit_code is None:
        detail = "The pod is over, but how it ended could not be learned. Its log may tell; submit the job again."
        return JobStatus.FAILED, Reason(ReasonCode.POD_LOST, detail)
    if event.exit_code == 0:
        return JobStatus.SUCCEEDED, Reason(ReasonCode.COMPLETED, "The command ended with exit code 0.")
    if event.exit_code > 128:
        detail = f"{command} was ended by signal {event.exit_code - 128}; its log may tell why."
        return JobStatus.FAILED, Reason(ReasonCode.KILLED_BY_SIGNAL, detail)
    detail = f"{command} ended with exit code {event.exit_code}; its log may tell why."
    return JobStatus.FAILED, Reason(ReasonCode.COMMAND_FAILED, detail)


def _broken(reservation: Reservation, reason: Reason, kind: JobEventKind) -> tuple[Reservation, tuple[Effect, ...]]:
    """The pods can't go on: clean up, then fail."""
    if reservation.status not in (JobStatus.STARTING, JobStatus.RUNNING):
        return reservation, ()
    after = replace(reservation, status=JobStatus.ENDING, outcome=JobStatus.FAILED, reason=reason)
    return after, (DeletePods(), Record(kind))


def _delayed(reservation: Reservation, event: StartDelayed) -> tuple[Reservation, tuple[Effect, ...]]:
    if reservation.reason == event.reason:
        return reservation, ()
    return replace(reservation, reason=event.reason), (Record(JobEventKind.START_DELAYED),)


def _take_back(
    reservation: Reservation, cause: Reason, max_starts: int, kind: JobEventKind
) -> tuple[Reservation, tuple[Effect, ...]]:
    """What could not start here is tried elsewhere, a bounded number of times."""
    after = taken_back(reservation, cause, max_starts)
    record = Record(kind, data={"attempt": reservation.attempt, "cause": cause.code.value})
    avoid = (AvoidNodes(),) if after.outcome is JobStatus.QUEUED else ()
    return after, (DeletePods(), *avoid, record)


def _gone(reservation: Reservation, now: datetime) -> tuple[Reservation, tuple[Effect, ...]]:
    if reservation.status is not JobStatus.ENDING or reservation.outcome is None:
        return reservation, ()
    if reservation.unsettled_until is not None and now < reservation.unsettled_until:
        return reservation, ()  # none is there, and yet one may come: its cards wait for that
    if reservation.outcome is JobStatus.QUEUED and reservation.started_at is not None:
        return _gone(replace(reservation, outcome=JobStatus.FAILED, reason=TOO_LATE), now)
    if reservation.outcome is JobStatus.QUEUED:
        return queued_again(reservation), (ReleaseGpus(), WakePlanner(), Record(JobEventKind.REQUEUED))
    after = replace(reservation, status=reservation.outcome, outcome=None, finished_at=now)
    return after, (ReleaseGpus(), WakePlanner(), Record(JobEventKind(reservation.outcome.value)))


def _fenced(reservation: Reservation, event: NodeFenced) -> tuple[Reservation, tuple[Effect, ...]]:
    """What ran there is lost; what was only starting there may start elsewhere."""
    why = "" if event.why is None else f" ({event.why})"
    reason = Reason(
        ReasonCode.NODE_LOST,
        f"The node {event.node} was fenced by {event.actor}{why}: it is without power. Submit the job again.",
    )
    if reservation.status is JobStatus.STARTING:
        after, effects = _take_back(reservation, reason, event.max_starts, JobEventKind.NODE_FENCED)
    else:
        after, effects = _broken(reservation, reason, JobEventKind.NODE_FENCED)
    return after, tuple(replace(e, actor=event.actor) if isinstance(e, Record) else e for e in effects)


def _end_reached(reservation: Reservation, now: datetime) -> tuple[Reservation, tuple[Effect, ...]]:
    if reservation.status is not JobStatus.RUNNING or reservation.ends_at is None or now < reservation.ends_at:
        return reservation, ()
    seconds = int(reservation.duration.total_seconds())
    detail = f"The job reached its end after {seconds} s. Extend a job in time with `gpu-dev extend`."
    after = replace(
        reservation,
        status=JobStatus.ENDING,
        outcome=JobStatus.EXPIRED,
        reason=Reason(ReasonCode.DURATION_REACHED, detail),
    )
    return after, (DeletePods(), Record(JobEventKind.END_REACHED))


def _warn(reservation: Reservation, event: WarningDue, now: datetime) -> tuple[Reservation, tuple[Effect, ...]]:
    if reservation.status is not JobStatus.RUNNING or reservation.ends_at is None:
        return reservation, ()
    if reservation.warned_s is not None and reservation.warned_s <= event.before_s:
        return reservation, ()
    left = int((reservation.ends_at - now).total_seconds())
    if left > event.before_s:
        return reservation, ()
    data = {"ends_at": reservation.ends_at.isoformat(), "seconds_left": max(left, 0)}
    return replace(reservation, warned_s=event.before_s), (Record(JobEventKind.END_WARNING, data=data),)


def _cancel(reservation: Reservation, event: CancelRequested, now: datetime) -> tuple[Reservation, tuple[Effect, ...]]:
    if reservation.status in FINAL_STATUSES:
        raise AlreadyFinalError(
            f"{reservation.id} has already ended ({reservation.status.value}); there is nothing to cancel."
        )
    code = ReasonCode.CANCELLED_BY_ADMIN if event.by_admin else ReasonCode.CANCELLED_BY_USER
    reason = Reason(code, " ".join(filter(None, (f"Cancelled by {event.actor}.", event.why))))
    match reservation.status:
        case JobStatus.QUEUED:
            after = replace(reservation, status=JobStatus.CANCELLED, reason=reason, finished_at=now)
            return after, (WakePlanner(), Record(JobEventKind.CANCELLED, event.actor))
        case JobStatus.STARTING | JobStatus.RUNNING:
            after = replace(reservation, status=JobStatus.ENDING, outcome=JobStatus.CANCELLED, reason=reason)
            return after, (DeletePods(), Record(JobEventKind.CANCEL_REQUESTED, event.actor))
        case _:
            if reservation.outcome is JobStatus.QUEUED:
                return replace(reservation, outcome=JobStatus.CANCELLED, reason=reason), (
                    Record(JobEventKind.CANCEL_REQUESTED, event.actor),
                )
            # It is ending already, for whatever reason: the first reason stands.
            return reservation, ()


def _extend(reservation: Reservation, event: ExtendRequested) -> tuple[Reservation, tuple[Effect, ...]]:
    if reservation.status in FINAL_STATUSES:
        raise AlreadyFinalError(f"{reservation.id} has already ended; submit a new job instead.")
    comes_back = reservation.outcome is JobStatus.QUEUED and reservation.started_at is None
    if reservation.status is JobStatus.ENDING and not comes_back:
        raise NotExtendableError(f"{reservation.id} is ending and can't be extended; submit a new job instead.")
    duration = reservation.duration + event.by
    if duration > event.longest:
        raise LimitExceededError(
            f"{reservation.id} would last {int(duration.total_seconds())} s; at most "
            f"{int(event.longest.total_seconds())} s are allowed. Extend it by less."
        )
    record = Record(JobEventKind.EXTENDED, event.actor, {"by_s": int(event.by.total_seconds())})
    if reservation.status is JobStatus.QUEUED or comes_back:
        return replace(reservation, duration=duration), (PlanAnew(), WakePlanner(), record)
    range_end = None if reservation.range_end is None else reservation.range_end + event.by
    ends_at = None if reservation.ends_at is None else reservation.ends_at + event.by
    reason = reservation.reason
    if ends_at is not None:
        reason = Reason(ReasonCode.RUNNING, f"Running until {ends_at:%Y-%m-%dT%H:%M:%SZ} at the latest.")
    after = replace(reservation, duration=duration, range_end=range_end, ends_at=ends_at, reason=reason, warned_s=None)
    move = () if range_end is None else (SetRangeEnd(range_end),)
    return after, (*move, MoveDeadline(), WakePlanner(), record)

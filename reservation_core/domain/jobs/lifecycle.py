"""The life of a reservation: its transitions, and the effects of each (see `changes`).

`queued → starting → running → ending → succeeded | failed | cancelled | expired`; a failed start and a job that is
retried go back from `ending` to `queued` (see `starts` and `retries`).

`transition` is the only place where a status changes. It decides; use cases carry the effects out. A late, repeated or
out-of-order report of the cluster or the clock changes nothing (no effects); an impossible request is a typed error.
GPUs are released only on `PodsGone`: when the pods are known to be gone, not when their end was requested.
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
    Decision,
    DeletePods,
    DependenciesMet,
    DependencyFailed,
    DrainBefore,
    ElementsChanged,
    EndReached,
    Event,
    ExtendRequested,
    GpusIdle,
    GpusNeeded,
    IdleOver,
    IdleReleaseDue,
    KeepRequested,
    LeftAlone,
    MoveDeadline,
    MoveToEnd,
    NodeFenced,
    PodsFinished,
    PodsGone,
    PodsLost,
    PodsRunning,
    Record,
    ReleaseGpus,
    Replan,
    SetRangeEnd,
    SignalDue,
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
from reservation_core.domain.jobs.arrays import cancel_array, element_named, follow_elements
from reservation_core.domain.jobs.dependencies import given_up, released
from reservation_core.domain.jobs.early_ends.clock_ends import end_left_alone, expire, reason_at_end, warn_of_end
from reservation_core.domain.jobs.early_ends.cut_short import booking_over, drain_before
from reservation_core.domain.jobs.early_ends.idle_jobs import clear_idle, keep, release_idle, warn_idle
from reservation_core.domain.jobs.observation import ended_in_time, outcome_of
from reservation_core.domain.jobs.preemption import (
    counted,
    end_signal_due,
    end_to_wait_again,
    ended_by_itself,
    explained_run,
    gpus_needed,
    is_preempted,
    lease_end,
)
from reservation_core.domain.jobs.retries import is_retried, retried
from reservation_core.domain.jobs.starts import TAKEN_AWAY, TOO_LATE, queued_again, taken_back, timed_out
from reservation_core.domain.model import Reason, Reservation
from reservation_core.domain.short_durations import written
from reservation_core.domain.statuses import FINAL_STATUSES, JobStatus, ReasonCode


@dataclass(frozen=True, slots=True)
class BulkTransition:
    """A transition that one statement makes for many rows; the statement takes its values from here."""

    before: JobStatus
    after: JobStatus
    reason: ReasonCode
    kind: JobEventKind


ALLOCATION = BulkTransition(JobStatus.QUEUED, JobStatus.STARTING, ReasonCode.ALLOCATED, JobEventKind.ALLOCATED)
"""The planner's transition. It also increments `attempt` and sets `range_end`."""


def transition(reservation: Reservation, event: Event, now: datetime) -> Decision:  # noqa: C901 - one arm an event
    """Decide what an event does to a reservation.

    Returns the reservation afterwards and the effects to carry out; the same reservation and no effects if nothing
    changes. Raises AlreadyFinalError, NotExtendableError or LimitExceededError for impossible requests of a user.
    """
    match event:
        case PodsRunning():
            return _run(reservation, event, now)
        case PodsFinished():
            return _finish(reservation, event, now)
        case PodsLost():
            return _fail(reservation, Reason(event.code, event.detail), JobEventKind.POD_LOST)
        case PodsGone():
            return _close(reservation, now)
        case StartRefused() | StartDelayed() | StartFailed() | StartTimedOut():
            return _change_start(reservation, event)
        case EndReached():
            return expire(reservation, now)
        case LeftAlone():
            return end_left_alone(reservation)
        case WarningDue():
            return warn_of_end(reservation, event, now)
        case GpusIdle():
            return warn_idle(reservation, event)
        case IdleOver():
            return clear_idle(reservation, now)
        case IdleReleaseDue():
            return release_idle(reservation, now, requeue=event.requeue)
        case KeepRequested():
            return keep(reservation, event, now)
        case SignalDue():
            return end_signal_due(reservation, now)
        case GpusNeeded():
            return gpus_needed(reservation, now, event.at)
        case CancelRequested():
            return _cancel(reservation, event, now)
        case ExtendRequested():
            return _extend(reservation, event, now)
        case NodeFenced():
            return _lose_node(reservation, event)
        case Adopted():
            return adopted(reservation, event)
        case BookingOver():
            return booking_over(reservation, event, now)
        case DrainBefore():
            return drain_before(reservation, event, now)
        case DependenciesMet():
            return released(reservation)
        case DependencyFailed():
            return given_up(reservation, event, now)
        case ElementsChanged():
            return follow_elements(reservation, event, now)
        case _:
            assert_never(event)


def decide(reservation: Reservation, event: Event, now: datetime) -> DecidedChange | None:
    """Like `transition`, as a change to write; None if nothing changes."""
    after, effects = transition(reservation, event, now)
    if after is reservation and not effects:
        return None
    return DecidedChange(reservation, after, effects, now)


def _change_start(
    reservation: Reservation, event: StartRefused | StartDelayed | StartFailed | StartTimedOut
) -> Decision:
    if reservation.status is not JobStatus.STARTING:
        return reservation, ()
    match event:
        case StartRefused():
            return _fail(reservation, event.reason, JobEventKind.START_FAILED)
        case StartDelayed():
            return _delay(reservation, event)
        case StartFailed():
            return _give_start_up(reservation, event.reason, event.max_starts, JobEventKind.START_FAILED)
        case StartTimedOut():
            cause = timed_out(reservation, int(event.allowance.total_seconds()))
            return _give_start_up(reservation, cause, event.max_starts, JobEventKind.START_TIMED_OUT)
        case _:
            assert_never(event)


def _run(reservation: Reservation, event: PodsRunning, now: datetime) -> Decision:
    started_at = min(event.at, now)
    if reservation.outcome is JobStatus.QUEUED and reservation.started_at is None:
        # Its start was given up, and it runs after all: its pods are being ended, and it fails (see `_close`).
        return replace(reservation, started_at=started_at), (Record(JobEventKind.STARTED_LATE),)
    if reservation.status is not JobStatus.STARTING:
        return reservation, ()
    ends_at = started_at + reservation.duration
    range_end = ends_at + event.turnaround
    if reservation.preemption.preemptible:
        # Its range may end before it does: it grows while nobody else needs the GPUs.
        range_end = lease_end(reservation, started_at, event.turnaround)
    elif reservation.range_end is not None:
        # The next reservation begins at the end of the range: by then the pods have to be gone.
        in_time = reservation.range_end - event.turnaround
        ends_at = min(ends_at, in_time if in_time > started_at else reservation.range_end)
    if reservation.range_end is not None:
        range_end = min(range_end, reservation.range_end)
    after = replace(
        reservation,
        status=JobStatus.RUNNING,
        reason=Reason(ReasonCode.RUNNING, explained_run(reservation, ends_at)),
        started_at=started_at,
        ends_at=ends_at,
        range_end=range_end,
    )
    # The unused part of the start allowance is free again, and the planner may use it.
    return after, (SetRangeEnd(range_end), WakePlanner(), Record(JobEventKind.STARTED))


def _finish(reservation: Reservation, event: PodsFinished, now: datetime) -> Decision:
    if reservation.status is JobStatus.ENDING:
        return _finish_while_ending(reservation, event, now)
    if reservation.status not in (JobStatus.STARTING, JobStatus.RUNNING):
        return reservation, ()
    outcome, reason = outcome_of(event)
    if reason.code is ReasonCode.DURATION_REACHED and reservation.reason.code is ReasonCode.MAINTENANCE:
        reason = reason_at_end(reservation)  # the cluster knows the end, and not why it is that
    # Without a run there is no start: a run of no length would count.
    started_at = None if reason.code is ReasonCode.START_FAILED else event.started_at
    after = replace(
        reservation,
        status=JobStatus.ENDING,
        outcome=outcome,
        reason=reason,
        exit_code=event.exit_code,
        started_at=reservation.started_at or started_at,
    )
    if not ended_by_itself(reservation, event):
        # It ends because it was asked to, so that its exit code says nothing about its work.
        asked = replace(reservation, exit_code=event.exit_code)
        return end_to_wait_again(asked, now, reservation.reason.detail)
    return after, (DeletePods(), Record(JobEventKind.FINISHED, data={"exit_code": event.exit_code}))


def _finish_while_ending(reservation: Reservation, event: PodsFinished, now: datetime) -> Decision:
    if reservation.exit_code is not None or event.exit_code is None:
        return reservation, ()
    outcome, reason = outcome_of(event)
    if is_preempted(reservation):
        by_itself = ended_by_itself(reservation, event)
        after = replace(reservation, outcome=outcome, reason=reason) if by_itself else reservation
    elif reservation.outcome is JobStatus.QUEUED:
        # Its start was given up, and it ran after all. A gang's work needs all its pods.
        if reservation.nodes > 1 or (outcome is not JobStatus.SUCCEEDED and event.started_at is None):
            return reservation, ()
        if outcome is not JobStatus.SUCCEEDED:
            return _run(reservation, PodsRunning(event.started_at or now), now)
        after = replace(reservation, outcome=outcome, reason=reason)
        after = replace(after, started_at=reservation.started_at or event.started_at)
    elif (
        reservation.outcome is JobStatus.EXPIRED
        and reservation.reason.code
        not in (ReasonCode.INACTIVE, ReasonCode.IDLE)  # a session's own command says nothing
        and ended_in_time(reservation, event)
        # An eviction while ending is our own doing.
        and reason.code not in TAKEN_AWAY
    ):
        # It ended before the clock did; the cluster's report came later.
        after = replace(reservation, outcome=outcome, reason=reason)
    else:
        after = reservation
    after = replace(after, exit_code=event.exit_code)
    return after, (Record(JobEventKind.EXITED, data={"exit_code": event.exit_code}),)


def _fail(reservation: Reservation, reason: Reason, kind: JobEventKind) -> Decision:
    """Delete the pods, which can't go on, then fail."""
    if reservation.status not in (JobStatus.STARTING, JobStatus.RUNNING):
        return reservation, ()
    asked_at = reservation.preemption.asked_at
    if asked_at is not None:  # it had nothing to do but to end and wait again
        after, effects = end_to_wait_again(reservation, asked_at, reservation.reason.detail)
        # How its other pods end from now on is our doing, and no end of their own.
        return replace(after, ends_at=asked_at), (*effects, Record(kind))
    after = replace(reservation, status=JobStatus.ENDING, outcome=JobStatus.FAILED, reason=reason)
    return after, (DeletePods(), Record(kind))


def _delay(reservation: Reservation, event: StartDelayed) -> Decision:
    if reservation.reason == event.reason:
        return reservation, ()
    return replace(reservation, reason=event.reason), (Record(JobEventKind.START_DELAYED),)


def _give_start_up(reservation: Reservation, cause: Reason, max_starts: int, kind: JobEventKind) -> Decision:
    """Try a failed start again on other nodes, a bounded number of times."""
    after = taken_back(reservation, cause, max_starts)
    record = Record(kind, data={"attempt": reservation.attempt, "cause": cause.code.value})
    avoid = (AvoidNodes(),) if after.outcome is JobStatus.QUEUED else ()
    return after, (DeletePods(), *avoid, record)


def _close(reservation: Reservation, now: datetime) -> Decision:
    if reservation.status is not JobStatus.ENDING or reservation.outcome is None:
        return reservation, ()
    if reservation.unsettled_until is not None and now < reservation.unsettled_until:
        return reservation, ()  # no pod exists, but one may still be created: keep its GPUs until then
    if is_preempted(reservation):
        record = Record(JobEventKind.REQUEUED, data={"attempt": reservation.attempt})
        back = (MoveToEnd(),) if reservation.reason.code is ReasonCode.IDLE else ()
        return queued_again(counted(reservation)), (ReleaseGpus(reservation.started_at), *back, WakePlanner(), record)
    if reservation.outcome is JobStatus.QUEUED and reservation.started_at is not None:
        return _close(replace(reservation, outcome=JobStatus.FAILED, reason=TOO_LATE), now)
    if reservation.outcome is JobStatus.QUEUED:
        return queued_again(reservation), (ReleaseGpus(), WakePlanner(), Record(JobEventKind.REQUEUED))
    if is_retried(reservation):
        data = {"attempt": reservation.attempt, "cause": reservation.reason.code.value}
        data |= {} if reservation.exit_code is None else {"exit_code": reservation.exit_code}
        again, ran_from = queued_again(retried(reservation)), reservation.started_at
        return again, (ReleaseGpus(ran_from), WakePlanner(), Record(JobEventKind.RETRIED, data=data))
    after = replace(reservation, status=reservation.outcome, outcome=None, finished_at=now)
    return after, (ReleaseGpus(), WakePlanner(), Record(JobEventKind(reservation.outcome.value)))


def _lose_node(reservation: Reservation, event: NodeFenced) -> Decision:
    """Fail a running job; a starting one may start elsewhere."""
    why = "" if event.why is None else f" ({event.why})"
    reason = Reason(
        ReasonCode.NODE_LOST,
        f"The node {event.node} was fenced by {event.actor}{why}: it is without power. Submit the job again.",
    )
    if reservation.status is JobStatus.STARTING:
        after, effects = _give_start_up(reservation, reason, event.max_starts, JobEventKind.NODE_FENCED)
    else:
        after, effects = _fail(reservation, reason, JobEventKind.NODE_FENCED)
    return after, tuple(
        replace(effect, actor=event.actor) if isinstance(effect, Record) else effect for effect in effects
    )


def _cancel(reservation: Reservation, event: CancelRequested, now: datetime) -> Decision:
    if reservation.status in FINAL_STATUSES:
        raise AlreadyFinalError(
            f"{reservation.id} has already ended ({reservation.status.value}); there is nothing to cancel."
        )
    code = ReasonCode.CANCELLED_BY_ADMIN if event.by_admin else ReasonCode.CANCELLED_BY_USER
    reason = Reason(code, " ".join(filter(None, (f"Cancelled by {event.actor}.", event.why))))
    if reservation.array is not None:
        return cancel_array(reservation, event, reason)
    match reservation.status:
        case JobStatus.QUEUED:
            after = replace(reservation, status=JobStatus.CANCELLED, reason=reason, finished_at=now)
            return after, (WakePlanner(), Record(JobEventKind.CANCELLED, event.actor))
        case JobStatus.STARTING | JobStatus.RUNNING:
            after = replace(reservation, status=JobStatus.ENDING, outcome=JobStatus.CANCELLED, reason=reason)
            return after, (DeletePods(), Record(JobEventKind.CANCEL_REQUESTED, event.actor))
        case _:
            if reservation.outcome is JobStatus.QUEUED or is_retried(reservation):
                after = replace(reservation, outcome=JobStatus.CANCELLED, reason=reason)
                return after, (Record(JobEventKind.CANCEL_REQUESTED, event.actor),)
            return reservation, ()  # it is ending already, and the first reason stands


def _extend(reservation: Reservation, event: ExtendRequested, now: datetime) -> Decision:
    if reservation.status in FINAL_STATUSES:
        raise AlreadyFinalError(f"{reservation.id} has already ended; submit a new job instead.")
    if reservation.array is not None:
        words = "is an array, and its elements are extended one by one."
        raise NotExtendableError(f"{reservation.id} {words} {element_named(reservation.id)}")
    is_given_up = reservation.outcome is JobStatus.QUEUED and (
        reservation.started_at is None or is_preempted(reservation)
    )
    will_requeue = is_given_up or is_retried(reservation)
    if reservation.status is JobStatus.ENDING and not will_requeue:
        raise NotExtendableError(f"{reservation.id} is ending and can't be extended; submit a new job instead.")
    duration = reservation.duration + event.by
    if duration > event.longest:
        raise LimitExceededError(
            f"{reservation.id} would last {written(duration)}; at most {written(event.longest)} are allowed. "
            "Extend it by less."
        )
    record = Record(JobEventKind.EXTENDED, event.actor, {"by_s": int(event.by.total_seconds())})
    if reservation.status is JobStatus.QUEUED or will_requeue:
        return replace(reservation, duration=duration), (Replan(), WakePlanner(), record)
    terms = reservation.preemption
    grows_by = timedelta(0) if terms.preemptible else event.by
    range_end = None if reservation.range_end is None else reservation.range_end + grows_by
    ends_at = None if reservation.ends_at is None else reservation.ends_at + event.by
    reason = reservation.reason
    if ends_at is not None:
        reason = Reason(ReasonCode.RUNNING, explained_run(reservation, ends_at))
    after = replace(reservation, duration=duration, range_end=range_end, ends_at=ends_at, reason=reason, warned_s=None)
    if terms.asked_at is None:
        after = replace(after, preemption=replace(terms, signalled_at=None))  # it is due again before the new end
    else:
        after = replace(after, reason=reservation.reason)
    after = after if event.by_itself else replace(after, idle=None, idle_from=now)
    move = () if range_end is None else (SetRangeEnd(range_end),)
    return after, (*move, MoveDeadline(), WakePlanner(), record)

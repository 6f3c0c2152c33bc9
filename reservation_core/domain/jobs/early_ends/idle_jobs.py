"""Running jobs whose GPUs are idle: warned, kept by their owners, used again, or ended by the policy."""

from dataclasses import replace
from datetime import datetime

from reservation_core.domain.changes import Decision, DeletePods, GpusIdle, KeepRequested, Record, SignalPods
from reservation_core.domain.errors import NotIdleError
from reservation_core.domain.event_kinds import JobEventKind
from reservation_core.domain.gpu_use.idle_rules import IdleWarning
from reservation_core.domain.jobs.arrays import element_named
from reservation_core.domain.jobs.preemption import ask_for_gpus, end_to_wait_again
from reservation_core.domain.model import Reason, Reservation
from reservation_core.domain.request_terms import REQUEUES
from reservation_core.domain.short_durations import written
from reservation_core.domain.statuses import JobStatus, ReasonCode

_NOT_IDLE = "The warning is taken back: its GPUs were used again, samples are missing, or the rule has changed."
_TO_THE_END = "It goes to the end of the queue; there is nothing to do."


def warn_idle(reservation: Reservation, event: GpusIdle) -> Decision:
    """Warn a running job once, but not one that was asked for its GPUs already."""
    asked_at = reservation.preemption.asked_at
    if reservation.status is not JobStatus.RUNNING or reservation.idle is not None or asked_at is not None:
        return reservation, ()
    after = replace(reservation, idle=event.warning)
    reason = Reason(ReasonCode.IDLE, _warning_words(event.warning))
    return after, (Record(JobEventKind.IDLE_WARNING, data=_data(event.warning), reason=reason),)


def clear_idle(reservation: Reservation, now: datetime) -> Decision:
    """Take a warning back; the job is idle again after a whole window from now."""
    if reservation.status is not JobStatus.RUNNING or reservation.idle is None:
        return reservation, ()
    record = Record(JobEventKind.IDLE_WARNING_OVER, reason=Reason(ReasonCode.IDLE, _NOT_IDLE))
    return replace(reservation, idle=None, idle_from=now), (record,)


def release_idle(reservation: Reservation, now: datetime, *, requeue: bool) -> Decision:
    """End a job whose warning is over, for its GPUs; never before the time that it was told.

    With `requeue` it waits again, unless it is a session, which has nothing to run, or has given GPUs back `REQUEUES`
    times: a command that hangs would go on for ever. Its signal comes first, and then the signal's lead.
    """
    warning = reservation.idle
    if reservation.status is not JobStatus.RUNNING or warning is None or warning.release_at is None:
        return reservation, ()
    if now < warning.release_at:
        return reservation, ()
    idle = f"Its GPUs were idle for {written(now - warning.since)} and go to others."
    if requeue and reservation.workload.command and reservation.preemption.times < REQUEUES:
        record = Record(JobEventKind.IDLE_RELEASED, data=_data(warning))
        asked = ask_for_gpus(reservation, now, ReasonCode.IDLE, idle, _TO_THE_END)
        if asked is not None:
            return replace(asked[0], idle=None, idle_from=now), (*asked[1], record)
        detail = f"{idle} {_TO_THE_END}"
        after, effects = end_to_wait_again(reservation, now, detail)
        after = replace(after, reason=Reason(ReasonCode.IDLE, detail))
        signal = () if reservation.preemption.end_signal is None else (SignalPods(),)
        return after, (*signal, *effects, record)
    detail = f"{idle} Next time end a job that you don't need, or keep it when you are warned: `gpu-dev keep ID`."
    after = replace(
        reservation,
        status=JobStatus.ENDING,
        outcome=JobStatus.EXPIRED,
        reason=Reason(ReasonCode.IDLE, detail),
        idle=None,
    )
    return after, (DeletePods(), Record(JobEventKind.IDLE_RELEASED, data=_data(warning)))


def keep(reservation: Reservation, event: KeepRequested, now: datetime) -> Decision:
    """Keep the GPUs of a warned job: they are idle again after a whole window. Raises NotIdleError."""
    if reservation.array is not None:
        words = "is an array, and its elements are warned one by one when their GPUs are idle."
        raise NotIdleError(f"{reservation.id} {words} {element_named(reservation.id)}")
    asked_at = reservation.preemption.asked_at
    if asked_at is not None:
        raise NotIdleError(
            f"{reservation.id} was asked to end at {asked_at:%Y-%m-%dT%H:%M:%SZ}, so it can't be kept any more. "
            f"{reservation.reason.detail}"
        )
    if reservation.status is not JobStatus.RUNNING or reservation.idle is None:
        raise NotIdleError(
            f"{reservation.id} is not about to end because of idle GPUs, so nothing needs to be kept. "
            f"`gpu-dev explain {reservation.id}` shows its state."
        )
    after = replace(reservation, idle=None, idle_from=now)
    return after, (Record(JobEventKind.KEPT, event.actor),)


def _warning_words(warning: IdleWarning) -> str:
    follows = "Others could use them."
    if warning.release_at is not None:
        follows = f"They go to others at {warning.release_at:%Y-%m-%dT%H:%M:%SZ} if they still are."
    return f"Its GPUs have been idle since {warning.since:%Y-%m-%dT%H:%M:%SZ}. {follows}"


def _data(warning: IdleWarning) -> dict[str, str | None]:
    release_at = warning.release_at
    return {
        "idle_since": warning.since.isoformat(),
        "release_at": None if release_at is None else release_at.isoformat(),
    }

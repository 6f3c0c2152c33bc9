"""Jobs that give their GPUs back when others need them, and wait again; and signals before an end.

A preemptible job keeps its GPUs for its `min_runtime`. When others need them after that, it is asked to end: it gets
its signal, if it named one, and has the signal's lead until its pods are ended. Whatever its exit code is then, it goes
back to its place in the queue, and the next attempt runs its command from the start. One that had ended before it was
asked has ended. A job that isn't preemptible may be asked as well, when its GPUs are idle: exit code 0 within the lead
ends it.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from reservation_core.domain.changes import (
    Decision,
    DeletePods,
    PodsFinished,
    Record,
    SetRangeEnd,
    SignalPods,
    WakePlanner,
)
from reservation_core.domain.event_kinds import JobEventKind
from reservation_core.domain.model import Reason, Reservation
from reservation_core.domain.short_durations import written
from reservation_core.domain.statuses import JobStatus, ReasonCode

LONGEST_LEAD_AT_ONCE = timedelta(minutes=1)
"""A job whose signal comes earlier before its end makes no room for a booking that begins now."""
RENEWED_EVERY = timedelta(seconds=20)
"""A range is renewed by so much. Others are promised the GPUs of a preemptible job at most twice that later."""

_WAITS_AGAIN = "It goes back to its place in the queue; there is nothing to do."
_NEEDED = f"Others need its GPUs, which it gives back as a preemptible job. {_WAITS_AGAIN}"
_MAINTAINED = f"Maintenance needs its GPUs, which it gives back as a preemptible job. {_WAITS_AGAIN}"


def end_signal_due(reservation: Reservation, now: datetime) -> Decision:
    """Signal a running job whose end is near, once."""
    terms, ends_at = reservation.preemption, reservation.ends_at
    if reservation.status is not JobStatus.RUNNING or terms.end_signal is None or ends_at is None:
        return reservation, ()
    if terms.signalled_at is not None or now < ends_at - terms.lead:
        return reservation, ()
    data = {"signal": terms.end_signal.signal.value, "ends_at": ends_at.isoformat()}
    after = replace(reservation, preemption=replace(terms, signalled_at=now))
    return after, (SignalPods(), Record(JobEventKind.END_SIGNALLED, data=data))


def gpus_needed(reservation: Reservation, now: datetime, booked_at: datetime | None) -> Decision:
    """Ask a preemptible job for its GPUs, or end it when its time since is over; never before its `min_runtime`.

    `booked_at`: the ledger has them for a booking from then on, even if a pod still runs, which the booking waits for.
    """
    after, effects = _asked(reservation, now)
    if after is reservation or booked_at is None or reservation.range_end is None or reservation.range_end <= booked_at:
        return after, effects
    return replace(after, range_end=booked_at), (SetRangeEnd(booked_at), WakePlanner(), *effects)


def _asked(reservation: Reservation, now: datetime) -> Decision:
    terms, started_at = reservation.preemption, reservation.started_at
    if reservation.status is not JobStatus.RUNNING or started_at is None:
        return reservation, ()
    if terms.asked_at is not None:
        is_over = terms.signalled_at is None or now >= terms.signalled_at + terms.lead
        why = reservation.reason.detail if reservation.reason.code is ReasonCode.IDLE else _NEEDED
        return end_to_wait_again(reservation, now, why) if is_over else (reservation, ())
    if not terms.preemptible or now < started_at + terms.min_runtime:
        return reservation, ()
    asked = ask_for_gpus(reservation, now, ReasonCode.PREEMPTED, "Others need its GPUs.", _WAITS_AGAIN)
    if asked is not None:
        return asked
    signal = () if terms.end_signal is None else (SignalPods(),)
    after, effects = end_to_wait_again(reservation, now, _NEEDED)
    return after, (*signal, *effects)


def ask_for_gpus(
    reservation: Reservation, now: datetime, code: ReasonCode, why: str, following: str
) -> Decision | None:
    """Signal a running job, which has the signal's lead until its pods are ended; None for one without a lead."""
    terms = reservation.preemption
    if terms.end_signal is None or not terms.lead:
        return None
    signalled_at = terms.signalled_at or now
    name, ends_at = terms.end_signal.signal.value, signalled_at + terms.lead
    detail = f"{why} It got SIG{name}, and ends by {ends_at:%Y-%m-%dT%H:%M:%SZ}. {following}"
    after = replace(
        reservation,
        preemption=replace(terms, asked_at=now, signalled_at=signalled_at),
        reason=Reason(code, detail),
    )
    data = {"signal": name, "ends_at": ends_at.isoformat()}
    first = () if terms.signalled_at is not None else (SignalPods(),)
    return after, (*first, Record(JobEventKind.PREEMPTION_ASKED, data=data))


def end_to_wait_again(reservation: Reservation, now: datetime, detail: str) -> Decision:
    """End a running job, which will be queued again when its pods are gone: at the end, if it was asked as idle."""
    asked_at = reservation.preemption.asked_at or now
    code = ReasonCode.IDLE if reservation.reason.code is ReasonCode.IDLE else ReasonCode.PREEMPTED
    after = replace(
        reservation,
        status=JobStatus.ENDING,
        outcome=JobStatus.QUEUED,
        reason=Reason(code, detail),
        preemption=replace(reservation.preemption, asked_at=asked_at),
        idle=None,
    )
    return after, (DeletePods(), Record(JobEventKind.PREEMPTED, data={"attempt": reservation.attempt}))


def end_for_maintenance(reservation: Reservation, now: datetime) -> Decision:
    """End a running job that `waits_after_maintenance` at an end that maintenance has set."""
    is_idle = reservation.reason.code is ReasonCode.IDLE
    return end_to_wait_again(reservation, now, reservation.reason.detail if is_idle else _MAINTAINED)


def waits_after_maintenance(reservation: Reservation) -> bool:
    """Whether a job that maintenance ends waits again: it is preemptible, or was asked for its GPUs before."""
    return reservation.preemption.preemptible or reservation.preemption.asked_at is not None


def is_preempted(reservation: Reservation) -> bool:
    """Whether an ending job will be queued again because it was asked for its GPUs."""
    return reservation.outcome is JobStatus.QUEUED and reservation.preemption.asked_at is not None


def ended_by_itself(reservation: Reservation, event: PodsFinished) -> bool:
    """Whether pods ended before they were asked to, or had done their work in the time that the job's signal left them.

    The latter holds for jobs that aren't preemptible: their owners never chose that exit code 0 may be a checkpoint.
    Clusters may report whole seconds.
    """
    terms, until = reservation.preemption, reservation.preemption.asked_at
    if until is None:
        return True
    if not terms.preemptible and event.exit_code == 0 and event.reason is None:
        if reservation.status is JobStatus.RUNNING:
            return True
        if terms.signalled_at is not None and reservation.ends_at is not None:
            until = max(until, min(terms.signalled_at + terms.lead, reservation.ends_at))
    return event.at < (until if event.at.microsecond else until.replace(microsecond=0))


def counted(reservation: Reservation) -> Reservation:
    """A job that `is_preempted`, with one preemption more and what its owner reads while it waits."""
    detail = f"Attempt {reservation.attempt} gave its GPUs back. It waits at its place in the queue again."
    if reservation.reason.code is ReasonCode.IDLE:
        detail = f"Attempt {reservation.attempt} left its GPUs idle. It waits at the end of the queue."
    terms = replace(reservation.preemption, times=reservation.preemption.times + 1)
    return replace(reservation, reason=Reason(ReasonCode.PREEMPTED, detail), preemption=terms)


def lease_end(reservation: Reservation, started_at: datetime, turnaround: timedelta) -> datetime:
    """Until when a preemptible job that started then has its GPUs for sure, and others may not be promised them."""
    kept = min(reservation.preemption.kept, reservation.duration)
    return started_at + kept + turnaround


def needs_of(turnaround: timedelta) -> timedelta:
    """How far ahead a preemptible job's GPUs have to be promised to others for it to be asked for them at once."""
    return turnaround + 2 * RENEWED_EVERY


def explained_run(reservation: Reservation, ends_at: datetime) -> str:
    """What a job's owner reads when it runs."""
    until = f"Running until {ends_at:%Y-%m-%dT%H:%M:%SZ} at the latest"
    if not reservation.preemption.preemptible:
        return f"{until}."
    kept = reservation.preemption.min_runtime
    return f"{until}; {f'after {written(kept)} ' if kept else ''}others may get its GPUs before."

"""The verdict on a request before it is made: it would start now, be accepted and start later, or be refused.

A refusal is what submitting would answer. Everything else is accepted, however long it waits: a job starts when the
planner would start it, or promise it a start, if it were submitted now (see `dry_runs`).
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.calendar import to_micros
from reservation_core.domain.changes import DependenciesMet
from reservation_core.domain.jobs.dependencies import KnownDependency, settle, still_open, waiting_reason
from reservation_core.domain.model import Reason
from reservation_core.domain.plan import Waiting
from reservation_core.domain.planning.dry_runs import DryRun, PlanView, Predict, SoonerJob
from reservation_core.domain.planning.predictions.start_predictor import Prediction
from reservation_core.domain.planning.wait_estimates import StartDelays
from reservation_core.domain.policy.rules import RuleBreach
from reservation_core.domain.pools.waiting_reasons import (
    behind_in_line,
    booking_begins_then,
    booking_too_full,
    taken_until_then,
)
from reservation_core.domain.statuses import RequestVerdict


class VerdictReason(NamedTuple):
    """Why a request is refused, or what it waits for: a stable code and a sentence."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Outlook:
    """A verdict with its reasons: what refuses the request, or all that it waits for.

    `starts_at` is about when it starts, `promised_at` when at the latest; None where it is refused, or is promised
    nothing. `sooner` are
    requests that would start earlier, `position` is its place in the queue. `estimated_start` is when it is likely to
    start, None where too little is known.
    """

    verdict: RequestVerdict
    starts_at: datetime | None = None
    reasons: tuple[VerdictReason, ...] = ()
    sooner: tuple[SoonerJob, ...] = ()
    promised_at: datetime | None = None
    position: int | None = None
    estimated_start: Prediction | None = None


def refused(broken: Iterable[RuleBreach]) -> Outlook:
    """The outlook of a request that submitting would refuse."""
    reasons = tuple(VerdictReason(breach.code, breach.detail) for breach in broken)
    return Outlook(RequestVerdict.REFUSED, None, reasons)


def booking_outlook(span: Span, missing: RuleBreach | None, now: datetime) -> Outlook:
    """The outlook of a booking that is allowed; `missing` says why it would be on the waitlist, if it would."""
    if missing is not None:
        return Outlook(RequestVerdict.ACCEPTED, None, (VerdictReason(missing.code, missing.detail),))
    if span.start <= now:
        return Outlook(RequestVerdict.STARTS_NOW, now)
    return Outlook(RequestVerdict.ACCEPTED, span.start)


def held_outlook(after: Sequence[KnownDependency]) -> Outlook | None:
    """The outlook of a job that waits for others, or would end for them; None for one that would be planned."""
    event = settle(after)
    if isinstance(event, DependenciesMet):
        return None
    reason = waiting_reason(still_open(after)) if event is None else event.reason
    return Outlook(RequestVerdict.ACCEPTED, reasons=(VerdictReason(reason.code, reason.detail),))


def chained_outlook(
    view: PlanView,
    job: Waiting,
    after: Sequence[KnownDependency],
    held: Outlook,
    now: datetime,
    predict: Predict | None = None,
) -> Outlook:
    """The outlook of a `held` job with `needs`, with the start that it would be promised, if that is known."""
    run = DryRun(view, job, now)
    if run.start is None:
        return held
    reason = waiting_reason(still_open(after), "")
    return replace(
        held,
        starts_at=run.start,
        promised_at=run.promised_at,
        reasons=(VerdictReason(reason.code, reason.detail),),
        estimated_start=None if predict is None else predict(run),
    )


def job_outlook(
    view: PlanView,
    job: Waiting,
    duration: timedelta,
    types: Collection[str],
    now: datetime,
    predict: Predict | None = None,
) -> Outlook:
    """The outlook of a job that submitting would accept. `types`: others that its owner may ask for instead."""
    run = DryRun(view, job, now)
    if run.start == now:
        return Outlook(RequestVerdict.STARTS_NOW, now, promised_at=now)
    reasons = _reasons(run, job, now)
    outlook = _waits(run, reasons, run.sooner(duration, types))
    return outlook if predict is None else replace(outlook, estimated_start=predict(run))


def _reasons(run: DryRun, job: Waiting, now: datetime) -> list[Reason]:
    """All that a job waits for."""
    pools = run.own.pools
    if not pools.for_job(job):
        never = pools.capacity.unplaceable(job.gpus, job.nodes, job.gpu_type, job.share)
        return [] if never is None else [never]
    start = None if run.start is None else to_micros(run.start)
    delays = StartDelays(run.own, to_micros(now)).of(job, start)
    if delays:
        return delays
    if start is None:
        # Without a quota, every job has its time; beyond the jobs that get slots it is not known yet.
        return [behind_in_line(job.gpu_type)]
    return [taken_until_then(job.gpus, job.nodes, job.gpu_type, job.share)]


def booked_job_outlook(view: PlanView, job: Waiting, duration: timedelta, booking: Span, now: datetime) -> Outlook:
    """The outlook of a job within a booking that has all of the view's GPUs.

    It ends with the booking at the latest: it starts as soon as GPUs are free, for as long as there is left.
    """
    run = DryRun(view, job, now)
    booking_id = job.booking_id or ""
    if run.start == now:
        return Outlook(RequestVerdict.STARTS_NOW, now, promised_at=now)
    if run.start is None:
        reason = booking_too_full(booking_id)
    elif run.start == booking.start:
        reason = booking_begins_then(booking_id)
    else:
        reason = taken_until_then(job.gpus, job.nodes, job.gpu_type)
    return _waits(run, [reason], run.sooner(duration, ()))


def _waits(run: DryRun, reasons: Iterable[Reason], sooner: Iterable[SoonerJob]) -> Outlook:
    named = tuple(VerdictReason(reason.code.value, reason.detail) for reason in reasons)
    return Outlook(RequestVerdict.ACCEPTED, run.start, named, tuple(sooner), run.promised_at)

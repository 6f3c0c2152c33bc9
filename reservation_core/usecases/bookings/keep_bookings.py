"""Due changes of bookings: start, warnings, use, release, end. The next run makes up for a missed one.

The database's clock decides, so any number of machines may run this, whatever their clocks. Due bookings are searched
first, and decided from rows that are read again under locks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.bookings.changes import DecidedBookingChange, StartWorkload, WorkloadRefused
from reservation_core.domain.bookings.due_changes import BookingRules, advance
from reservation_core.domain.bookings.life import decide as decide_booking
from reservation_core.domain.bookings.nouns import Booking
from reservation_core.domain.changes import SYSTEM, BookingOver
from reservation_core.domain.errors import UnknownCallerError
from reservation_core.domain.jobs.lifecycle import decide
from reservation_core.domain.model import PodWorkload, Reason, Reservation
from reservation_core.domain.policy.limits import Policy
from reservation_core.domain.statuses import BookingStatus, JobStatus, ReasonCode, ReservationKind
from reservation_core.ports.bookings.booking_life import OrphanedJob
from reservation_core.ports.ids import IdSource
from reservation_core.ports.jobs.reservations import NewReservation
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.carry_out import carry_out
from reservation_core.usecases.jobs.submit import ACCEPTED

_BATCH = 200


@dataclass(frozen=True, slots=True)
class BookingKeeping:
    """When to warn, and after how long an unused booking is released by default (None: never)."""

    rules: BookingRules
    no_show_grace: timedelta | None


@dataclass(frozen=True, slots=True)
class BookingsReport:
    """The result of a run: changes of bookings, and jobs that ended with their booking."""

    changed: int
    ended_jobs: int


async def keep_bookings(uow_factory: UnitOfWorkFactory, ids: IdSource, keeping: BookingKeeping) -> BookingsReport:
    """Apply all due changes of open bookings."""
    # Jobs end first: a closed booking must contain none.
    ended = await _end_left_over(uow_factory)
    changed = 0
    while True:
        async with uow_factory() as uow:
            due, done = await _advance(uow, ids, keeping)
        changed += done
        # A batch without any change would be read again and again.
        if due < _BATCH or not done:
            break
    if changed:
        ended += await _end_left_over(uow_factory)
    return BookingsReport(changed, ended)


async def _advance(uow: UnitOfWork, ids: IdSource, keeping: BookingKeeping) -> tuple[int, int]:
    """Apply a batch of due changes; the number of due bookings and of changes."""
    due = await uow.booking_life.due(keeping.rules, await uow.now(), _BATCH)
    if not due:
        return 0, 0
    await uow.booking_life.block_plans()
    bookings = await uow.bookings.lock(due)
    facts = await uow.booking_life.facts(list(bookings))
    policy = (await uow.policies.current()).policy
    now = await uow.now()
    changes: list[DecidedBookingChange] = []
    for booking_id, booking in sorted(bookings.items()):
        around = replace(facts[booking_id], grace=_grace(policy, booking, keeping.no_show_grace))
        changes += advance(booking, around, keeping.rules, now)
    await carry_out_bookings(uow, changes, ids)
    return len(due), len(changes)


def _grace(policy: Policy, booking: Booking, otherwise: timedelta | None) -> timedelta | None:
    """How long a booking may stay unused, by the policy or else by the setting."""
    limit = policy.limits(booking.user, booking.project, booking.wanted.gpu_type).no_show_grace
    return otherwise if limit is None else limit.value


async def carry_out_bookings(uow: UnitOfWork, changes: Sequence[DecidedBookingChange], ids: IdSource) -> None:
    """Write changes with their effects; listeners are woken after commit."""
    if not changes:
        return
    await uow.booking_life.apply(changes)
    last = {change.after.id: change.after for change in changes}
    refused: list[DecidedBookingChange] = []
    for change in changes:
        workload = change.after.workload
        if workload is not None and any(isinstance(effect, StartWorkload) for effect in change.effects):
            detail = await _start(uow, change.after, workload, ids.new_id("job"), change.at)
            if detail is not None:
                written = last[change.after.id]
                written = replace(written, version=written.version + 1)
                refusal = decide_booking(written, WorkloadRefused(detail), change.at)
                refused += [] if refusal is None else [refusal]
    await uow.booking_life.apply(refused)
    uow.wake(Channel.EVENTS)
    uow.wake(Channel.GPU_JOBS)


async def _start(uow: UnitOfWork, booking: Booking, workload: PodWorkload, job_id: str, now: datetime) -> str | None:
    """Submit the workload of a booking that has just begun; return why it was refused.

    A refusal must not keep the booking from beginning: its owner can still submit jobs.
    """
    owner = await uow.identities.user(booking.user)
    disabled = f"The user {booking.user} is disabled."
    if owner is None or owner.disabled_at is not None:
        return disabled
    job = _job_of(booking, workload, job_id, now)
    [answer] = await uow.reservations.submit([NewReservation(job, actor=SYSTEM)], now)
    if isinstance(answer.refusal, UnknownCallerError):
        return disabled
    if answer.refusal is not None:
        return answer.refusal.detail
    await uow.booking_life.link_job(booking.id, job_id)
    return None


def _job_of(booking: Booking, workload: PodWorkload, job_id: str, now: datetime) -> Reservation:
    """The job for a booking's workload, which may last as long as the booking."""
    left = booking.span.end - now
    return Reservation(
        id=job_id,
        seq=0,
        kind=ReservationKind.JOB,
        user_id=booking.user_id,
        user=booking.user,
        name=booking.title,
        status=JobStatus.QUEUED,
        reason=ACCEPTED,
        gpus=booking.wanted.gpus,
        gpu_type=booking.wanted.gpu_type,
        nodes=booking.wanted.nodes,
        duration=max(left, timedelta(seconds=1)),
        priority=0,
        workload=workload,
        created_at=now,
        version=1,
        booking_id=booking.id,
        project=booking.project,
    )


async def _end_left_over(uow_factory: UnitOfWorkFactory) -> int:
    """End jobs within ended bookings: waiting jobs, and running ones whose own end was missed."""
    ended = 0
    while True:
        async with uow_factory() as uow:
            left_over = await uow.booking_life.left_over(await uow.now(), _BATCH)
            jobs = await uow.reservations.lock([job.job_id for job in left_over]) if left_over else {}
            # Read again: a booking may have been extended while the locks were waited for.
            still = {job.job_id: job for job in await uow.booking_life.left_over(await uow.now(), _BATCH)}
            now = await uow.now()
            decided = [decide(job, _over(still[job.id]), now) for job in jobs.values() if job.id in still]
            changes = [change for change in decided if change is not None]
            await carry_out(uow, changes)
        ended += len(changes)
        if len(left_over) < _BATCH or not changes:
            return ended


def _over(left: OrphanedJob) -> BookingOver:
    """How a job ends whose booking has ended."""
    match left.booking_status:
        case BookingStatus.RELEASED:
            why = f"The booking {left.booking_id} was released because nothing ran in it."
        case BookingStatus.CANCELLED:
            why = f"The booking {left.booking_id} was cancelled."
        case _:
            why = f"The booking {left.booking_id} ended."
            detail = f"{why} Book more time, or submit the job without a booking."
            return BookingOver(JobStatus.EXPIRED, Reason(ReasonCode.BOOKING_OVER, detail))
    detail = f"{why} Submit the job again, in another booking or without one."
    return BookingOver(JobStatus.CANCELLED, Reason(ReasonCode.BOOKING_OVER, detail))

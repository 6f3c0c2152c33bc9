"""Disable a user: cancel waiting jobs and requests, and on request also running jobs and bookings.

After the commit, nothing of the user is stored or started, even by processes that still accept the token. A job that is
being stored meanwhile never starts; recently disabled users are checked until no such job can arrive, and no failed
start can be requeued.
"""

from dataclasses import dataclass
from datetime import timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.bookings.changes import Cancelled
from reservation_core.domain.bookings.life import transition
from reservation_core.domain.bookings.nouns import FINAL_BOOKINGS
from reservation_core.domain.changes import SYSTEM, CancelRequested
from reservation_core.domain.errors import ForbiddenError
from reservation_core.domain.event_kinds import PeopleEventKind
from reservation_core.domain.jobs.lifecycle import decide
from reservation_core.domain.statuses import FINAL_STATUSES, BookingStatus, JobStatus, ReservationKind
from reservation_core.ports.people.belongings import Belonging
from reservation_core.ports.people.identities import Principal, UserRecord
from reservation_core.usecases.bookings.book import wake_listeners
from reservation_core.usecases.carry_out import carry_out
from reservation_core.usecases.people.users import require_admin, unknown_user
from reservation_core.usecases.repeat_lost_transactions import repeat_lost

MOST_SHOWN = 1000
SETTLES = timedelta(minutes=2)
"""After this time, everything that was being stored at the disabling is stored."""
_BATCH = 200
_WAITING_BOOKINGS = frozenset({BookingStatus.WAITING, BookingStatus.OFFERED})


@dataclass(frozen=True, slots=True)
class StillHeld:
    """The oldest MOST_SHOWN open jobs and bookings of a disabled user, and their total number."""

    belongings: tuple[Belonging, ...]
    in_all: int


async def disable(uow: UnitOfWork, principal: Principal, name: str, *, end: bool) -> UserRecord:
    """Disable a user with all tokens, and end what is shared with the user. Raises ForbiddenError, NotFoundError.

    Callers can't disable themselves, so an administrator is always left. After the commit, `cancel_belongings` ends
    jobs and bookings; `end` goes to the audit log.
    """
    require_admin(principal)
    if name in ("me", principal.user):
        raise ForbiddenError("You can't disable yourself. Ask another administrator to do it.")
    # The same clock as in `settle_disabled`.
    now = await uow.now()
    user = await uow.identities.disable_user(name, now)
    if user is None:
        raise await unknown_user(uow, principal, name)
    await uow.shares.remove_all(user.id)
    await uow.events.append(
        actor=principal.user, kind=PeopleEventKind.USER_DISABLED, at=now, subject=f"user:{name}", data={"end": end}
    )
    return user


async def cancel_belongings(uow_factory: UnitOfWorkFactory, user: UserRecord, actor: str, *, end: bool) -> int:
    """Cancel waiting jobs and bookings of a disabled user, or with `end` all open ones; returns their number.

    In batches, and safe to repeat after an interruption.
    """
    cancelled = 0
    while True:
        open_count, done = await repeat_lost(lambda: _batch(uow_factory, user, actor, end=end))
        cancelled += done
        # A batch without any change would be read again and again.
        if open_count < _BATCH or not done:
            return cancelled


async def left(uow: UnitOfWork, user: UserRecord) -> StillHeld:
    """The open jobs and bookings of a user."""
    belongings, in_all = await uow.belongings.left(user.id, MOST_SHOWN)
    return StillHeld(tuple(belongings), in_all)


async def settle_disabled(uow_factory: UnitOfWorkFactory) -> int:
    """Cancel jobs and requests that arrived after their user was disabled; returns their number."""
    async with uow_factory() as uow:
        users = await uow.identities.unsettled()
    cancelled = 0
    for user in users:
        async with uow_factory() as uow:
            now = await uow.now()
        cancelled += await cancel_belongings(uow_factory, user, SYSTEM, end=False)
        if user.disabled_at is not None and now >= user.disabled_at + SETTLES:
            async with uow_factory() as uow:
                # Under this lock no job of the user is requeued (see `Reservations.apply`).
                await uow.policies.lock_holders([user.id], ())
                await uow.identities.mark_settled(user.id, now)
    return cancelled


async def _batch(uow_factory: UnitOfWorkFactory, user: UserRecord, actor: str, *, end: bool) -> tuple[int, int]:
    """Cancel a batch; the number of open and of cancelled jobs and bookings."""
    async with uow_factory() as uow:
        if user.id not in await uow.policies.lock_holders([user.id], ()):
            return 0, 0  # the user was enabled again, and stays so under this lock
        read = uow.belongings.open if end else uow.belongings.waiting
        belongings = await read(user.id, _BATCH)
        if not belongings:
            return 0, 0
        return len(belongings), await _cancel(uow, belongings, f"The user {user.name} is disabled.", actor, end=end)


async def _cancel(uow: UnitOfWork, belongings: list[Belonging], why: str, actor: str, *, end: bool) -> int:
    booking_ids = [belonging.id for belonging in belongings if belonging.kind is ReservationKind.BOOKING]
    job_ids = {belonging.id for belonging in belongings if belonging.kind is ReservationKind.JOB}
    # Jobs before bookings, the general lock order; and no plan may add jobs to them meanwhile.
    await uow.booking_life.block_plans()
    job_ids |= set(await uow.bookings.jobs_within(booking_ids))
    jobs = await uow.reservations.lock(sorted(job_ids))
    bookings = await uow.bookings.lock(booking_ids)
    # Read after every lock: jobs that have started meanwhile stay, unless everything is to end.
    now = await uow.now()
    changes = [
        decide(job, CancelRequested(actor, by_admin=True, why=why), now)
        for job in jobs.values()
        if (end and job.status not in FINAL_STATUSES) or JobStatus.QUEUED in (job.status, job.outcome)
    ]
    done = [change for change in changes if change is not None]
    await carry_out(uow, done)
    before = [
        booking
        for booking in bookings.values()
        if (end and booking.status not in FINAL_BOOKINGS) or booking.status in _WAITING_BOOKINGS
    ]
    after = [transition(booking, Cancelled(actor, by_admin=True, why=why), now)[0] for booking in before]
    if before:
        await uow.bookings.cancel(before, after, actor, now)
        wake_listeners(uow)
    return len(done) + len(before)

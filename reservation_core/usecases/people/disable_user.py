"""Disabling a user: nothing new of theirs begins, what waits is cancelled, and what runs or is booked goes on or ends.

Once it is committed, nothing of theirs is stored or started any more, whichever process believes their token still. A
job may be on its way in meanwhile: it is never started, and who was disabled lately is looked at again and again until
that can't be any more, as is who has a job that waits once more because its start failed.
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
from reservation_core.domain.model import FINAL_STATUSES, BookingStatus, JobStatus, Reservation, ReservationKind
from reservation_core.ports.people.belongings import Belonging
from reservation_core.ports.people.identities import Principal, UserRecord
from reservation_core.usecases.bookings.book import told
from reservation_core.usecases.carry_out import carry_out
from reservation_core.usecases.people.users import require_admin, unknown_user
from reservation_core.usecases.repeat_lost_transactions import until_not_lost

MOST_SHOWN = 1000
SETTLES = timedelta(minutes=2)
"""By then what was being stored when they were disabled is stored."""
_BATCH = 200
_WAITING_BOOKINGS = frozenset({BookingStatus.WAITING, BookingStatus.OFFERED})


@dataclass(frozen=True, slots=True)
class StillHeld:
    """What a disabled user still has: the oldest MOST_SHOWN of `in_all`."""

    belongings: tuple[Belonging, ...]
    in_all: int


async def disable(uow: UnitOfWork, principal: Principal, name: str, *, end: bool) -> UserRecord:
    """Stop a user's tokens from working. Raises ForbiddenError, NotFoundError.

    Nobody disables themselves, so that an administrator is always left. What becomes of what they have is for
    `wind_up`, once this is committed; `end` says in the record what it will be.
    """
    require_admin(principal)
    if name in ("me", principal.user):
        raise ForbiddenError("You can't disable yourself. Ask another administrator to do it.")
    # By the clock that `settle_disabled` reads, too.
    now = await uow.now()
    user = await uow.identities.disable_user(name, now)
    if user is None:
        raise unknown_user(name)
    await uow.events.append(
        actor=principal.user, kind=PeopleEventKind.USER_DISABLED, at=now, subject=f"user:{name}", data={"end": end}
    )
    return user


async def wind_up(uow_factory: UnitOfWorkFactory, user: UserRecord, actor: str, *, end: bool) -> int:
    """Cancel what a disabled user has waiting, or with `end` everything of theirs; returns how many that were.

    In batches: whoever is interrupted can do it again.
    """
    cancelled = 0
    while True:
        found, done = await until_not_lost(lambda: _batch(uow_factory, user, actor, end=end))
        cancelled += done
        # A batch in which nothing could be done would be found again and again.
        if found < _BATCH or not done:
            return cancelled


async def left(uow: UnitOfWork, user: UserRecord) -> StillHeld:
    """What they still have."""
    belongings, in_all = await uow.belongings.left(user.id, MOST_SHOWN)
    return StillHeld(tuple(belongings), in_all)


async def settle_disabled(uow_factory: UnitOfWorkFactory) -> int:
    """Cancel what has come in for users while they were disabled; returns how many that were."""
    async with uow_factory() as uow:
        users = await uow.identities.unsettled()
    cancelled = 0
    for user in users:
        async with uow_factory() as uow:
            now = await uow.now()
        cancelled += await wind_up(uow_factory, user, SYSTEM, end=False)
        if user.disabled_at is not None and now >= user.disabled_at + SETTLES:
            async with uow_factory() as uow:
                # Under this lock nothing of theirs goes back to its place in line (see `Reservations.apply`).
                await uow.policies.lock_holders([user.id], ())
                await uow.identities.note_settled(user.id, now)
    return cancelled


async def _batch(uow_factory: UnitOfWorkFactory, user: UserRecord, actor: str, *, end: bool) -> tuple[int, int]:
    """How many were found, and how many of them cancelled."""
    async with uow_factory() as uow:
        if user.id not in await uow.policies.lock_holders([user.id], ()):
            return 0, 0  # they may come in again, and nobody disables or enables them meanwhile
        listed = uow.belongings.open if end else uow.belongings.waiting
        found = await listed(user.id, _BATCH)
        if not found:
            return 0, 0
        return len(found), await _cancel(uow, found, f"The user {user.name} is disabled.", actor, end=end)


async def _cancel(uow: UnitOfWork, found: list[Belonging], why: str, actor: str, *, end: bool) -> int:
    booking_ids = [belonging.id for belonging in found if belonging.kind is ReservationKind.BOOKING]
    job_ids = {belonging.id for belonging in found if belonging.kind is ReservationKind.JOB}
    # Jobs before bookings, as wherever jobs within bookings are written; and no plan may put more into them meanwhile.
    await uow.booking_life.hold_planning()
    job_ids |= set(await uow.bookings.jobs_within(booking_ids))
    jobs = await uow.reservations.lock(sorted(job_ids))
    bookings = await uow.bookings.lock(booking_ids)
    # After every lock: what has gone on meanwhile is left alone, unless everything is to end.
    now = await uow.now()
    changes = [
        decide(job, CancelRequested(actor, by_admin=True, why=why), now)
        for job in jobs.values()
        if (end and job.status not in FINAL_STATUSES) or _waits(job)
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
        told(uow)
    return len(done) + len(before)


def _waits(job: Reservation) -> bool:
    return job.status is JobStatus.QUEUED or job.outcome is JobStatus.QUEUED

"""Cancel a booking or later ones of its series, and free the rest of their time at once."""

from typing import Literal

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.bookings.changes import Cancelled
from reservation_core.domain.bookings.life import transition
from reservation_core.domain.bookings.nouns import FINAL_BOOKINGS, Booking
from reservation_core.domain.changes import BookingOver
from reservation_core.domain.jobs.lifecycle import decide
from reservation_core.domain.model import Reason, Reservation
from reservation_core.domain.statuses import JobStatus, ReasonCode
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.bookings.book import wake_listeners
from reservation_core.usecases.bookings.visible_bookings import lock_owned_bookings, view_owned_booking
from reservation_core.usecases.carry_out import carry_out

Reach = Literal["this", "following", "all"]
"""The bookings of a series to cancel: this one, this and the following, or all open ones."""


async def cancel_booking(
    uow: UnitOfWork, principal: Principal, booking_id: str, reach: Reach, expected_version: int | None
) -> list[Booking]:
    """Cancel bookings, and return them by start.

    Waiting jobs within them end at once, running ones after their grace. Raises NotFoundError, StaleVersionError, and
    AlreadyFinalError when the requested booking has ended.
    """
    asked = await view_owned_booking(uow, principal, booking_id)
    ids = {booking_id}
    if reach != "this" and asked.series_id is not None:
        first = asked.occurrence if reach == "following" and asked.occurrence is not None else 0
        ids |= set(await uow.bookings.of_series(asked.series_id, first))
    # Jobs before bookings, the general lock order; and no plan may add jobs to them meanwhile.
    await uow.booking_life.block_plans()
    jobs = await uow.reservations.lock(await uow.bookings.jobs_within(sorted(ids)))
    owned = await lock_owned_bookings(uow, principal, sorted(ids), booking_id, expected_version)
    open_ones = [booking for booking in owned if booking.status not in FINAL_BOOKINGS or booking.id == booking_id]
    # Read after every lock, so that no later commit lies within the cancelled time.
    now = await uow.now()
    by_admin = asked.user_id != principal.user_id
    after = [transition(booking, Cancelled(principal.user, by_admin), now)[0] for booking in open_ones]
    over = {booking.id for booking in open_ones}
    changes = [decide(job, _over(job, principal.user), now) for job in jobs.values() if job.booking_id in over]
    await carry_out(uow, [change for change in changes if change is not None])
    await uow.bookings.cancel(open_ones, after, principal.user, now)
    wake_listeners(uow)
    cancelled = await uow.bookings.lock([booking.id for booking in open_ones])
    return sorted(cancelled.values(), key=lambda booking: (booking.span.start, booking.id))


def _over(job: Reservation, actor: str) -> BookingOver:
    detail = f"The booking {job.booking_id} was cancelled. Submit the job again, in another booking or without one."
    return BookingOver(JobStatus.CANCELLED, Reason(ReasonCode.BOOKING_OVER, detail), actor)

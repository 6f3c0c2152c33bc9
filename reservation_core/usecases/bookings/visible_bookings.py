"""Finding a booking on behalf of somebody: what is not theirs can be seen in lists, but not changed or looked into."""

from collections.abc import Sequence

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.bookings.nouns import Booking
from reservation_core.domain.errors import NotFoundError, StaleVersionError
from reservation_core.ports.people.identities import Principal


def no_such_booking(booking_id: str) -> NotFoundError:
    """The same words whether the booking never was or belongs to somebody else."""
    return NotFoundError(f"There is no booking {booking_id} of yours. `gpu-dev book list` shows your bookings.")


def is_theirs(principal: Principal, booking: Booking) -> bool:
    """Whether the caller may look into it and change it."""
    return principal.is_admin or booking.user_id == principal.user_id


async def view_owned_booking(uow: UnitOfWork, principal: Principal, booking_id: str) -> Booking:
    """Read a booking. Raises NotFoundError when it is not the caller's."""
    found = await uow.bookings.view(booking_id)
    if found is None or not is_theirs(principal, found):
        raise no_such_booking(booking_id)
    return found


async def lock_owned_bookings(
    uow: UnitOfWork, principal: Principal, ids: Sequence[str], first: str, expected_version: int | None
) -> list[Booking]:
    """Lock bookings to change them; `expected_version` is that of `first`, which must be one of them.

    Raises NotFoundError when `first` is not the caller's, StaleVersionError when it has changed since it was read.
    """
    found = await uow.bookings.lock(ids)
    asked = found.get(first)
    if asked is None or not is_theirs(principal, asked):
        raise no_such_booking(first)
    if expected_version is not None and expected_version != asked.version:
        raise StaleVersionError(
            f"{first} has changed: it is at version {asked.version}, not {expected_version}. "
            "Read it again and decide anew."
        )
    return [booking for booking in found.values() if is_theirs(principal, booking)]

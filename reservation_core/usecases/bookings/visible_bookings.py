"""Find a booking for a caller: other users' bookings appear in lists, but can't be opened or changed."""

from collections.abc import Sequence

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.bookings.nouns import Booking
from reservation_core.domain.errors import NotFoundError, StaleVersionError
from reservation_core.ports.people.identities import Principal


def no_such_booking(booking_id: str) -> NotFoundError:
    """The same error for missing bookings and those of other users."""
    return NotFoundError(f"You have no booking {booking_id}. `gpu-dev book list` shows your bookings.")


def may_change_booking(principal: Principal, booking: Booking) -> bool:
    """Whether the caller may open and change a booking."""
    return principal.is_admin or booking.user_id == principal.user_id


async def view_owned_booking(uow: UnitOfWork, principal: Principal, booking_id: str) -> Booking:
    """Read a booking. Raises NotFoundError when it is not the caller's."""
    booking = await uow.bookings.view(booking_id)
    if booking is None or not may_change_booking(principal, booking):
        raise no_such_booking(booking_id)
    return booking


async def lock_owned_bookings(
    uow: UnitOfWork, principal: Principal, ids: Sequence[str], first: str, expected_version: int | None
) -> list[Booking]:
    """Lock the caller's bookings among `ids`; `expected_version` is that of `first`, which must be one of them.

    Raises NotFoundError when `first` is not the caller's, StaleVersionError when it has changed since it was read.
    """
    bookings = await uow.bookings.lock(ids)
    requested = bookings.get(first)
    if requested is None or not may_change_booking(principal, requested):
        raise no_such_booking(first)
    if expected_version is not None and expected_version != requested.version:
        raise StaleVersionError(
            f"{first} has changed: it is at version {requested.version}, not {expected_version}. "
            "Read it again, then repeat the change."
        )
    return [booking for booking in bookings.values() if may_change_booking(principal, booking)]

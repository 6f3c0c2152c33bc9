"""Changing bookings beside what happens in them at that moment."""

import pytest

from reservation_core.contracts.bookings import BookingChange
from reservation_core.domain.bookings.nouns import Booking
from reservation_core.domain.errors import NotBookableError
from reservation_core.usecases.bookings.change import change_booking
from tests.integration.reservation_core.usecases.booking_world import HOUR, MINUTE, BookingWorld
from tests.integration.reservation_core.usecases.bookings.test_keep_bookings import NINE, running_within


async def lasting(bookings: BookingWorld, booking_id: str, hours: float) -> Booking:
    change = BookingChange.model_validate({"duration": int(hours * 3600)})
    async with bookings.world.uow() as uow:
        return await change_booking(uow, bookings.world.who, booking_id, change, None)


async def overrunning(bookings: BookingWorld) -> Booking:
    """A booking five minutes before its end, in which a pod is still there whose job's time is over."""
    made = await bookings.booked(NINE)
    await bookings.at(NINE)
    job = await running_within(bookings, made.id)
    await bookings.rows(
        "WITH j AS (UPDATE reservations SET ends_at = :end, range_end = :end WHERE id = :id) "
        "UPDATE allocations SET during = tstzrange(lower(during), :end) WHERE reservation_id = :id RETURNING id",
        id=job,
        end=NINE + 54 * MINUTE,
    )
    await bookings.at(NINE + 55 * MINUTE)
    return made


async def test_a_pod_of_its_own_that_overruns_does_not_keep_a_booking_from_lasting_longer(
    bookings: BookingWorld,
) -> None:
    made = await overrunning(bookings)
    assert (await lasting(bookings, made.id, 2)).span.end == NINE + 2 * HOUR


async def test_a_pod_within_another_booking_keeps_its_card_from_who_comes_next(bookings: BookingWorld) -> None:
    made = await overrunning(bookings)
    with pytest.raises(NotBookableError, match="2 GPUs on each of 2 nodes are not free"):
        await bookings.booked(NINE + HOUR, gpus=2, nodes=2)
    assert (await bookings.booking(made.id)).span.end == NINE + HOUR

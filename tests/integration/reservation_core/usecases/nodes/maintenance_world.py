"""Windows of maintenance, planned or as a dry run, and what they do to bookings, slots and GPUs."""

from datetime import datetime, timedelta

from reservation_core.contracts.maintenance import MaintenanceCreate
from reservation_core.domain.bookings.maintenance import Window
from reservation_core.domain.bookings.nouns import Booking
from reservation_core.domain.bookings.windows import Fate
from reservation_core.domain.statuses import BookingStatus, GpuState
from reservation_core.usecases.nodes.maintenance import (
    plan_window,
    preview_window,
)
from tests.clocks import START
from tests.integration.reservation_core.usecases.booking_world import HOUR, BookingWorld

NINE = START + 24 * HOUR


GRACE = timedelta(seconds=10)


EVERYWHERE = {"nodes": ["a", "b"]}


def wanted(start: datetime | None = NINE, length: timedelta = 4 * HOUR, **fields: object) -> MaintenanceCreate:
    return MaintenanceCreate.model_validate(
        {
            **({} if start is None else {"start": start.isoformat()}),
            "duration": int(length.total_seconds()),
            "reason": "New fans.",
            **({"node": "a"} if not {"nodes", "gpus"} & fields.keys() else {}),
            **fields,
        }
    )


async def planned(bookings: BookingWorld, request: MaintenanceCreate | None = None) -> Window:
    root = await bookings.root()
    async with bookings.world.uow() as uow:
        return await plan_window(uow, root, request or wanted(), bookings.ids, GRACE)


async def previewed(bookings: BookingWorld, request: MaintenanceCreate | None = None) -> Window:
    return await preview_window(bookings.world.uow, await bookings.root(), request or wanted(), bookings.ids, GRACE)


def fates(window: Window) -> dict[str, Fate]:
    return {affected_use.id: affected_use.fate for affected_use in window.affected}


async def rest_of(bookings: BookingWorld, window: Window, booking_id: str) -> Booking:
    """The booking that has what a window left of another."""
    [affected] = [affected_use for affected_use in window.affected if affected_use.id == booking_id]
    assert affected.goes_on_as is not None
    rest = await bookings.booking(affected.goes_on_as)
    assert (rest.status, rest.span.start) == (BookingStatus.CONFIRMED, affected.resumes_at)
    assert booking_id in rest.why.detail
    return rest


def places(booking: Booking) -> set[tuple[str, int]]:
    """Its cards."""
    return {(card.node, card.index) for card in booking.cards}


async def states(bookings: BookingWorld) -> dict[tuple[str, int], GpuState]:
    async with bookings.world.uow() as uow:
        return {(gpu.node, gpu.index): gpu.state for gpu in await uow.inventory.gpus(after=None, limit=100)}


async def slot_of(bookings: BookingWorld, gpu_id: int, start: datetime) -> str:
    """A waiting job that was promised a card."""
    job_id = await bookings.world.submitted()
    await bookings.rows(
        "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, planned, created_at) "
        "VALUES (:j, 1, :gpu, 0, tstzrange(:s, :e), false, true, :s) RETURNING id",
        j=job_id,
        gpu=gpu_id,
        s=start,
        e=start + HOUR,
    )
    return job_id

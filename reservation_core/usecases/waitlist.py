"""The waitlist: offering what comes free to who waits for it, and what they answer.

Level-triggered: a look compares the line with the calendar, whatever made the room. Who is served is decided once more
under the locks under which bookings are made, with the policy as it is then; who is not permitted keeps their place.
"""

from collections.abc import Callable
from datetime import timedelta

from reservation_core.domain.booking_changes import Accepted, Booked, BookingEvent, Declined, Offered
from reservation_core.domain.booking_life import decide
from reservation_core.domain.bookings import Booking
from reservation_core.domain.card_choice import bookable, choose
from reservation_core.domain.errors import CalendarConflictError
from reservation_core.domain.model import BookingStatus
from reservation_core.domain.waitlist import Turns, WaitingRequest
from reservation_core.ports.identities import Principal
from reservation_core.ports.ids import IdSource
from reservation_core.ports.transactions import UnitOfWork, UnitOfWorkFactory
from reservation_core.usecases.book import AROUND, cards_around, stored, type_of
from reservation_core.usecases.booking_rules import booker, from_now, judge_for, permitted
from reservation_core.usecases.keep_bookings import carry_out_bookings
from reservation_core.usecases.owned_bookings import lock_owned_bookings, view_owned_booking

_LOOKED_AT = 500


async def serve_waitlist(uow_factory: UnitOfWorkFactory, ids: IdSource, offer: timedelta) -> int:
    """Look once whether something came free for who waits; `offer` is how long it is kept for an answer.

    Returns how many were offered or given something.
    """
    async with uow_factory() as uow:
        line = await uow.booking_life.waiting(_LOOKED_AT)
        if not line:
            return 0
        now = await uow.now()
        start = min(each.span.start for each in line) - AROUND
        cards = bookable(await uow.bookings.cards(start, max(each.span.end for each in line) + AROUND), now)
    served = 0
    turns = Turns(line, cards, now)
    while (request := turns.next()) is not None:
        try:
            async with uow_factory() as uow:
                if await _serve(uow, request, ids, offer):
                    served += 1
                else:
                    turns.pass_over()
        except CalendarConflictError:
            continue  # somebody else was quicker; it keeps its place
    return served


async def _serve(uow: UnitOfWork, request: WaitingRequest, ids: IdSource, offer: timedelta) -> bool:
    """Offer or book what came free, if it is still so."""
    who = await booker(uow, request.user_id, request.user, request.project)
    booking = (await uow.bookings.lock([request.id])).get(request.id)
    if booking is None or booking.status is not BookingStatus.WAITING:
        return False
    now = await uow.now()
    cards = await cards_around(uow, booking.span, now)
    judge = await judge_for(uow, who, booking.wanted, cards, now, replaces=booking.id)
    # It was asked for in time: how near its start is by now does not speak against it.
    able, _ = permitted(judge, cards, booking.span, keeps_start=True)
    chosen = choose(able, booking.wanted, *from_now(booking.span, now)) if able else None
    if chosen is None:
        return False
    gpu_type = type_of(able, chosen)
    event = Booked(chosen, gpu_type) if booking.auto_accept else Offered(chosen, gpu_type, now + offer)
    change = decide(booking, event, now)
    if change is None:
        return False
    await carry_out_bookings(uow, [change], ids)
    return True


async def accept(
    uow: UnitOfWork, principal: Principal, booking_id: str, expected_version: int | None, ids: IdSource
) -> Booking:
    """Take what is offered. Raises NotFoundError, StaleVersionError, NotOfferedError, AlreadyFinalError."""
    return await _answer(uow, principal, booking_id, expected_version, ids, Accepted)


async def decline(
    uow: UnitOfWork, principal: Principal, booking_id: str, expected_version: int | None, ids: IdSource
) -> Booking:
    """Don't take what is offered: it is over, and the next has it. Raises as `accept` does."""
    return await _answer(uow, principal, booking_id, expected_version, ids, Declined)


async def _answer(
    uow: UnitOfWork,
    principal: Principal,
    booking_id: str,
    expected_version: int | None,
    ids: IdSource,
    event_of: Callable[[str], BookingEvent],
) -> Booking:
    await view_owned_booking(uow, principal, booking_id)
    [booking] = await lock_owned_bookings(uow, principal, [booking_id], booking_id, expected_version)
    change = decide(booking, event_of(principal.user), await uow.now())
    if change is not None:
        await carry_out_bookings(uow, [change], ids)
    return await stored(uow, booking_id)

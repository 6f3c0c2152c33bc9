"""The waitlist: offer free GPUs to waiting requests, and handle the answers.

Level-triggered: a pass compares the waitlist with the calendar, whatever has changed. Every offer is decided again
under the locks of bookings, with the current policy; a request that is not permitted keeps its place.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from math import inf

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.bookings.card_choice import bookable, choose
from reservation_core.domain.bookings.changes import Accepted, Booked, BookingEvent, Declined, Offered
from reservation_core.domain.bookings.life import decide
from reservation_core.domain.bookings.nouns import Booking
from reservation_core.domain.bookings.refusals import from_now, permitted
from reservation_core.domain.bookings.waitlist import Turn, WaitingRequest, WaitlistPass, WaitlistState
from reservation_core.domain.errors import CalendarConflictError
from reservation_core.domain.statuses import BookingStatus
from reservation_core.ports.bookings.booking_life import WaitlistMark
from reservation_core.ports.ids import IdSource
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.bookings.book import stored, type_of
from reservation_core.usecases.bookings.keep_bookings import carry_out_bookings
from reservation_core.usecases.bookings.read_booking_rules import AROUND, booker, cards_around, judge_for
from reservation_core.usecases.bookings.visible_bookings import lock_owned_bookings, view_owned_booking

MOST_WAITING = 20_000
"""The number of requests in a pass; where more wait, every user's first requests come before later ones."""

_EVERYBODY_AFTER_S = 60.0
"""Seconds between passes over all requests, as policies change without any GPU becoming free."""

_SLICE_S = 0.005
"""A pass over thousands of requests yields to other tasks after so many seconds."""


class Waitlist:
    """Serves the waitlist, with state between passes.

    `offer` is how long GPUs are held for an answer. A pass that takes longer than `at_most_s` continues in the next
    call, so that all requests get their turn without blocking other work.
    """

    def __init__(self, uow_factory: UnitOfWorkFactory, ids: IdSource, offer: timedelta, at_most_s: float = inf) -> None:
        self._uow = uow_factory
        self._ids = ids
        self._offer = offer
        self._at_most_s = at_most_s
        self._state = WaitlistState()
        self._mark: WaitlistMark | None = None
        self._requests: list[WaitingRequest] = []
        self._turns: WaitlistPass | None = None
        self._everybody_at = -inf
        self._one_at_a_time = asyncio.Lock()
        self._asked = False

    async def serve(self) -> int:
        """Serve requests whose GPUs became free; returns the number of offers and bookings.

        One call at a time: a call while another one is about to begin returns at once.
        """
        if self._asked:
            return 0
        self._asked = True
        try:
            await self._one_at_a_time.acquire()
        finally:
            self._asked = False
        try:
            return await self._continue_pass()
        except BaseException:
            self._turns = None
            self._state.forget()
            raise
        finally:
            self._one_at_a_time.release()

    async def _continue_pass(self) -> int:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._at_most_s
        if self._turns is None:
            self._turns = await self._begin(loop.time())
        served = 0
        rest_at = loop.time() + _SLICE_S
        while not self._turns.over and loop.time() < until:
            turn = self._turns.try_next()
            if turn is not None:
                served += await self._serve(turn, self._turns)
            elif loop.time() >= rest_at:
                await asyncio.sleep(0)
                rest_at = loop.time() + _SLICE_S
        if self._turns.over:
            self._state.end(self._turns)
            self._turns = None
        return served

    async def _begin(self, at: float) -> WaitlistPass:
        async with self._uow() as uow:
            mark = await uow.booking_life.waitlist_mark()
            if mark != self._mark:
                self._requests = await uow.booking_life.waiting(MOST_WAITING)
                self._mark = mark
            now = await uow.now()
            ahead = [request for request in self._requests if request.span.start > now]
            if not ahead:
                return WaitlistPass((), (), now)
            start = min(request.span.start for request in ahead) - AROUND
            cards = bookable(await uow.bookings.cards(start, max(request.span.end for request in ahead) + AROUND), now)
        everybody = at >= self._everybody_at + _EVERYBODY_AFTER_S
        if everybody:
            self._everybody_at = at
        return self._state.begin(ahead, cards, now, everybody=everybody)

    async def _serve(self, turn: Turn, turns: WaitlistPass) -> bool:
        try:
            async with self._uow() as uow:
                if await _serve(uow, turn, self._ids, self._offer):
                    return True
        except CalendarConflictError:
            return False  # another booking was faster; the request keeps its place
        turns.pass_over()
        return False


async def _serve(uow: UnitOfWork, turn: Turn, ids: IdSource, offer: timedelta) -> bool:
    """Offer or book GPUs that are still free. GPUs that became free during the pass are for the next one."""
    request = turn.request
    # A user who has left the project keeps earlier requests.
    who = replace(await booker(uow, request.user_id, request.user, request.project), foreign=None)
    if who.disabled:
        return False  # the request is about to be cancelled
    booking = (await uow.bookings.lock([request.id])).get(request.id)
    if booking is None or booking.status is not BookingStatus.WAITING or booking.span != request.span:
        return False
    now = await uow.now()
    cards = [card for card in await cards_around(uow, booking.span, now) if card.gpu_id in turn.among]
    judge = await judge_for(uow, who, booking.wanted, cards, now, replaces=booking.id)
    # The request was made in time, so rules about the start's nearness no longer apply.
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
    """Accept an offer. Raises NotFoundError, StaleVersionError, NotOfferedError, AlreadyFinalError."""
    return await _answer(uow, principal, booking_id, expected_version, ids, Accepted)


async def decline(
    uow: UnitOfWork, principal: Principal, booking_id: str, expected_version: int | None, ids: IdSource
) -> Booking:
    """Decline an offer, which ends the request and frees the GPUs. Raises as `accept` does."""
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

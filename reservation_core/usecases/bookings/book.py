"""Book a slot: GPUs at once, a place on the waitlist, or a refusal with every reason and the nearest free slots.

The calendar may change between read and write: the database then refuses the write, and the booking is tried again. A
booking that loses several races locks the calendar, so that no free slot stays unused.
"""

from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.bookings import BookingCreate
from reservation_core.domain.bookings.asked_slots import FARTHEST_START, Span
from reservation_core.domain.bookings.card_choice import BookableGpu, bookable
from reservation_core.domain.bookings.nouns import Booking, ChosenGpu, Wanted, Why
from reservation_core.domain.bookings.refusals import (
    Booker,
    Judge,
    slots_near,
)
from reservation_core.domain.errors import NotBookableError
from reservation_core.domain.model import PodWorkload
from reservation_core.domain.people.token_budgets import Ask, ask_for
from reservation_core.domain.policy.rules import RuleBreach
from reservation_core.domain.statuses import BookingReason, BookingStatus
from reservation_core.ports.bookings.bookings import NewBooking
from reservation_core.ports.ids import IdSource
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.bookings.read_booking_rules import calling_booker, cards_around, judge_for
from reservation_core.usecases.bookings.take_lent_gpus import ask_for_lent_gpus, rule_on_with_lent
from reservation_core.usecases.spend_budgets import spend

LOCK_CALENDAR_AFTER = 3
TRIES = 6
_BOOKED_IN_TURN = "It is booked when its GPUs become free."
_OFFERED = "Its GPUs are offered when they become free."


async def book(uow: UnitOfWork, principal: Principal, request: BookingCreate, ids: IdSource) -> Booking:
    """Book one slot for the caller, or with `wait` add a request to the waitlist when nothing is free.

    Raises NotBookableError with every broken rule and the nearest slots, or NotPermittedError when the token's budget
    does not cover it.
    """
    wanted, span = wanted_by_request(request), request.span
    who = await calling_booker(uow, principal, request.project)
    for attempt in range(TRIES):
        if attempt == LOCK_CALENDAR_AFTER:
            await uow.bookings.lock_calendar()
        now = await uow.now()
        cards = await cards_around(uow, span, now)
        judge = await judge_for(uow, who, wanted, cards, now)
        gpus, broken = await rule_on_with_lent(uow, judge, cards, span, wait=request.wait)
        if broken:
            raise await refusal(uow, judge, span, broken)
        chosen = None if gpus is None else gpus.chosen
        victims = frozenset[str]() if gpus is None else gpus.victims
        if victims and not await ask_for_lent_gpus(uow, victims, span, now):
            continue
        new = NewBooking(accepted(request, who, wanted, span, cards, chosen, ids, now), chosen or ())
        if await uow.bookings.add([new], None):
            await spend(uow, principal, [booking_ask(new.booking)], now)
            wake_listeners(uow)
            return await stored(uow, new.booking.id)
        if victims:
            break  # they were asked in this transaction, for nothing: it must not be committed
    raise NotBookableError("Others took these GPUs at the same time, again and again. Send the request again.")


def wanted_by_request(request: BookingCreate) -> Wanted:
    return Wanted(request.gpus, request.nodes, request.gpu_type, request.node)


def booking_ask(booking: Booking, before: timedelta = timedelta(0)) -> Ask:
    """The charge of a booking to a budget, less the charge for its former length `before`."""
    return ask_for(booking.id, booking.wanted.gpus * booking.wanted.nodes, booking.span.length, before)


async def refusal(uow: UnitOfWork, judge: Judge, span: Span, broken: list[RuleBreach]) -> NotBookableError:
    """The refusal of a slot, with the nearest free slots."""
    ahead = judge.now + 2 * FARTHEST_START
    # A booking's own GPUs do not block it.
    without = () if judge.replaces is None else (judge.replaces,)
    cards = bookable(await uow.bookings.cards(judge.now, ahead, without=without), judge.now)
    nearest = slots_near(judge, cards, span, broken)
    following = ("Take one of `nearest_slots`.",) if nearest else ()  # each reason says what else to change
    return NotBookableError(" ".join((*(breach.detail for breach in broken), *following)), broken, nearest)


def wake_listeners(uow: UnitOfWork) -> None:
    """Wake the planner and the followers of the audit log after commit."""
    uow.wake(Channel.GPU_JOBS)
    uow.wake(Channel.EVENTS)


async def stored(uow: UnitOfWork, booking_id: str) -> Booking:
    """Read a booking that this transaction has written."""
    booking = await uow.bookings.view(booking_id)
    if booking is None:
        raise LookupError(f"{booking_id} was written and is not there")
    return booking


def workload_of(request: BookingCreate) -> PodWorkload | None:
    """The workload of the job that the booking starts by itself."""
    workload = request.workload
    if workload is None:
        return None
    return PodWorkload(tuple(workload.command), workload.image, tuple(workload.env.items()), workload.working_dir)


def type_of(cards: list[BookableGpu], chosen: tuple[ChosenGpu, ...]) -> str:
    """The type of the chosen GPUs, which is the same for all GPUs of a booking."""
    return next(card.gpu_type for card in cards if card.gpu_id == chosen[0].gpu_id)


def booked_reason(span: Span) -> Why:
    """The reason of a confirmed booking."""
    start, end = (f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in (span.start, span.end))
    return Why(BookingReason.BOOKED, f"Booked from {start} to {end}.")


def accepted(
    request: BookingCreate,
    who: Booker,
    wanted: Wanted,
    span: Span,
    cards: list[BookableGpu],
    chosen: tuple[ChosenGpu, ...] | None,
    ids: IdSource,
    now: datetime,
    series: tuple[str, int] | None = None,
) -> Booking:
    """The new booking: confirmed with GPUs, else on the waitlist. `series`: the series' id and the date's number."""
    if chosen is None:
        status = BookingStatus.WAITING
        why = Why(BookingReason.WAITING_FOR_SLOT, _BOOKED_IN_TURN if request.auto_accept else _OFFERED)
    else:
        status, why = BookingStatus.CONFIRMED, booked_reason(span)
        wanted = Wanted(wanted.gpus, wanted.nodes, type_of(cards, chosen), wanted.node)
    return Booking(
        id=ids.new_id("bkg"),
        seq=0,
        user_id=who.user_id,
        user=who.user,
        title=request.title,
        project=who.project,
        status=status,
        why=why,
        wanted=wanted,
        span=span,
        workload=workload_of(request),
        created_at=now,
        version=1,
        series_id=None if series is None else series[0],
        occurrence=None if series is None else series[1],
        auto_accept=request.auto_accept,
        waits_until=span.start if chosen is None else None,
    )

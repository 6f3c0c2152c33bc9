"""Book a series: all of its dates or none, or those that are bookable."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.bookings import BookingCreate, Recurrence
from reservation_core.domain.bookings.asked_slots import FARTHEST_START, Span
from reservation_core.domain.bookings.card_choice import BookableGpu, bookable, with_booked
from reservation_core.domain.bookings.nouns import Booking, Wanted
from reservation_core.domain.bookings.recurrences import Occurrence
from reservation_core.domain.bookings.refusals import (
    Booker,
    Judge,
    Skipped,
    from_now,
    rule_on,
    slots_near,
    this_minute,
)
from reservation_core.domain.errors import NotBookableError
from reservation_core.domain.policy.rule_words import moment_text
from reservation_core.domain.policy.rules import RuleBreach
from reservation_core.domain.wall_times import zone_name
from reservation_core.ports.bookings.bookings import NewBooking, NewSeries
from reservation_core.ports.ids import IdSource
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.bookings.book import (
    LOCK_CALENDAR_AFTER,
    TRIES,
    accepted,
    booking_ask,
    wake_listeners,
    wanted_by_request,
)
from reservation_core.usecases.bookings.read_booking_rules import AROUND, calling_booker, judge_for
from reservation_core.usecases.spend_budgets import spend

DATES_WITH_SLOTS = 5
"""The number of unbookable dates for which the nearest slots are searched."""


@dataclass(frozen=True, slots=True)
class SeriesOutcome:
    """A booked series with its dates in order, and the skipped dates."""

    series_id: str
    booked: tuple[Booking, ...]
    skipped: tuple[Skipped, ...]


@dataclass(slots=True)
class _Plan:
    """The results by date; `cards` and `judge` include the earlier dates."""

    cards: list[BookableGpu]
    judge: Judge
    new: list[NewBooking]
    missing: list[tuple[Occurrence, list[RuleBreach]]]


async def book_series(
    uow: UnitOfWork, principal: Principal, request: BookingCreate, recurrence: Recurrence, ids: IdSource
) -> SeriesOutcome:
    """Book the dates of a series for the caller.

    Raises NotBookableError with all unbookable dates, unless they may be skipped and one is bookable; NotPermittedError
    when the token's budget does not cover all bookable dates.
    """
    dates = request.dates()
    series_id = ids.new_id("ser")
    who = await calling_booker(uow, principal, request.project)
    for attempt in range(TRIES):
        if attempt == LOCK_CALENDAR_AFTER:
            await uow.bookings.lock_calendar()
        now = await uow.now()
        plan = await _plan(uow, who, request, dates, series_id, ids, now)
        skipped = await _skipped(uow, plan) if plan.missing else []
        if skipped and (recurrence.on_conflict == "fail" or not plan.new):
            raise _refusal(skipped, len(dates))
        series = NewSeries(series_id, who.user_id, recurrence.rrule, zone_name(request.series_zone), now)
        if await uow.bookings.add(plan.new, series):
            await spend(uow, principal, [booking_ask(booking.booking) for booking in plan.new], now)
            wake_listeners(uow)
            booked = [await uow.bookings.view(booking.booking.id) for booking in plan.new]
            return SeriesOutcome(series_id, tuple(booking for booking in booked if booking is not None), tuple(skipped))
    raise NotBookableError("Others took these GPUs at the same time, again and again. Send the request again.")


async def _plan(
    uow: UnitOfWork,
    who: Booker,
    request: BookingCreate,
    dates: list[Occurrence],
    series_id: str,
    ids: IdSource,
    now: datetime,
) -> _Plan:
    wanted = wanted_by_request(request)
    spans = [day.span for day in dates if day.span is not None]
    start = max(min((span.start for span in spans), default=now), this_minute(now))
    end = max(start, max((span.end for span in spans), default=now))
    cards = bookable(await uow.bookings.cards(start - AROUND, end + AROUND), now)
    plan = _Plan(cards, await judge_for(uow, who, wanted, cards, now), [], [])
    for day in dates:
        _plan_date(plan, day, request, who, wanted, series_id, ids, now)
    return plan


def _plan_date(
    plan: _Plan,
    date: Occurrence,
    request: BookingCreate,
    who: Booker,
    wanted: Wanted,
    series_id: str,
    ids: IdSource,
    now: datetime,
) -> None:
    if date.span is None:
        plan.missing.append((date, [RuleBreach("no_such_local_time", date.why)]))
        return
    chosen, broken = rule_on(plan.judge, plan.cards, date.span, wait=False)
    if chosen is None:
        plan.missing.append((date, broken))
        return
    booking = accepted(request, who, wanted, date.span, plan.cards, chosen, ids, now, (series_id, date.number))
    plan.new.append(NewBooking(booking, chosen))
    plan.cards = with_booked(plan.cards, chosen, *from_now(date.span, now))
    plan.judge = plan.judge.after(booking.id, booking.wanted.gpu_type or "", date.span)


async def _skipped(uow: UnitOfWork, plan: _Plan) -> list[Skipped]:
    """The unbookable dates; for the first of them also the nearest slots, given the other dates of the series."""
    ahead = plan.judge.now + 2 * FARTHEST_START
    cards = bookable(await uow.bookings.cards(plan.judge.now, ahead), plan.judge.now)
    for booking in plan.new:
        cards = with_booked(cards, booking.chosen, *from_now(booking.booking.span, plan.judge.now))
    skipped: list[Skipped] = []
    for number, (date, broken) in enumerate(plan.missing):
        wish = date.span or Span(date.local_start.replace(tzinfo=UTC), date.local_start.replace(tzinfo=UTC))
        near = (
            slots_near(plan.judge, cards, wish, broken)
            if number < DATES_WITH_SLOTS and wish.length > timedelta(0)
            else []
        )
        nearest = tuple(Span(start, end) for start, end in near)
        local = date.local_start.isoformat(timespec="minutes")
        skipped.append(Skipped(date.span, local, tuple(broken), nearest))
    return skipped


def _refusal(skipped: list[Skipped], dates: int) -> NotBookableError:
    found: dict[tuple[str, str], list[str]] = {}
    for date in skipped:
        start = date.local_start if date.span is None else moment_text(date.span.start)
        for broken in date.broken:
            found.setdefault((broken.code, broken.detail), []).append(start)
    rules = [RuleBreach(code, f"{', '.join(starts)}: {detail}") for (code, detail), starts in found.items()]
    slots = sorted({(span.start, span.end) for date in skipped for span in date.nearest})
    if len(skipped) == dates:
        return NotBookableError("Nothing was booked: none of the dates is available.", rules, slots)
    return NotBookableError(
        f"Nothing was booked: {len(skipped)} of {dates} dates are not available. Change these, or leave them out with "
        "`on_conflict`.",
        rules,
        slots,
    )

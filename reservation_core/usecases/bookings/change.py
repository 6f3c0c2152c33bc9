"""Extend, shorten or move a booking, which keeps its old slot until it has the new one."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.bookings import BookingChange
from reservation_core.domain.bookings.card_choice import BookableGpu, choose
from reservation_core.domain.bookings.nouns import FINAL_BOOKINGS, Booking, ChosenGpu, Wanted, Why
from reservation_core.domain.bookings.refusals import Booker, from_now, permitted, reasons, timing
from reservation_core.domain.calendar import to_micros, to_moment
from reservation_core.domain.errors import (
    AlreadyFinalError,
    CalendarConflictError,
    NotBookableError,
    NotChangeableError,
    UnknownCallerError,
)
from reservation_core.domain.event_kinds import BookingEventKind
from reservation_core.domain.policy.rules import RuleBreach
from reservation_core.domain.statuses import BookingReason, BookingStatus, ReservationKind
from reservation_core.ports.bookings.bookings import CalendarEntry, ChangedBooking
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.bookings.book import (
    LOCK_CALENDAR_AFTER,
    TRIES,
    booked_reason,
    booking_ask,
    refusal,
    stored,
    wake_listeners,
)
from reservation_core.usecases.bookings.read_booking_rules import booker, cards_around, judge_for
from reservation_core.usecases.bookings.visible_bookings import lock_owned_bookings, view_owned_booking
from reservation_core.usecases.spend_budgets import spend


async def change_booking(
    uow: UnitOfWork, principal: Principal, booking_id: str, change: BookingChange, expected_version: int | None
) -> Booking:
    """Apply all of a change or nothing.

    The booking keeps its GPUs where possible, and always once it has begun. Raises NotFoundError, StaleVersionError,
    AlreadyFinalError, NotChangeableError, UnknownCallerError, NotBookableError with the nearest slots,
    NotPermittedError when the token's budget does not cover the change, and CalendarConflictError when jobs within it
    run longer than its new end.
    """
    asked = await view_owned_booking(uow, principal, booking_id)
    # The owner's quotas count, whoever the caller is. Users are locked before planning is held: the planner locks the
    # owners of jobs first, and then its lease.
    who = replace(await booker(uow, asked.user_id, asked.user, asked.project), foreign=None)
    if who.disabled and principal.user_id == who.user_id:
        raise UnknownCallerError
    if asked.jobs:
        # Plans put slots of waiting jobs into the booking.
        await uow.booking_life.block_plans()
    [before] = await lock_owned_bookings(uow, principal, [booking_id], booking_id, expected_version)
    after = _changed(before, change, await uow.now())
    if (after.span, after.wanted) == (before.span, before.wanted):
        if after.title != before.title:
            kept = tuple(ChosenGpu(card.gpu_id, card.rank) for card in before.cards)
            now = await uow.now()
            await uow.bookings.change(
                ChangedBooking(before, after, kept, keeps_cards=True), principal.user, BookingEventKind.CHANGED, now
            )
            wake_listeners(uow)
        return await stored(uow, booking_id)
    return await _move(uow, principal, who, before, after)


def has_begun(booking: Booking, now: datetime) -> bool:
    """Whether the booking is in its slot, even if its status does not show it yet."""
    match booking.status:
        case BookingStatus.ACTIVE:
            return True
        case BookingStatus.CONFIRMED:
            return booking.span.start <= now
        case _:
            return False


def _changed(before: Booking, change: BookingChange, now: datetime) -> Booking:
    """The booking as requested. Raises AlreadyFinalError, NotChangeableError or NotBookableError."""
    if before.status in FINAL_BOOKINGS:
        raise AlreadyFinalError(f"{before.id} is over ({before.status.value}); there is nothing to change.")
    named = change.model_fields_set
    span = change.span_from(before.span)
    wanted = replace(before.wanted, node=change.node) if "node" in named else before.wanted
    if span.length <= timedelta(0):
        raise NotChangeableError(f"{before.id} would end before it begins. Give another start or end.")
    if wanted.node is not None and wanted.nodes > 1:
        raise NotChangeableError(f"{before.id} is on {wanted.nodes} nodes, so it can't be pinned to one.")
    if (span, wanted) != (before.span, before.wanted):
        if before.status is BookingStatus.OFFERED:
            raise NotChangeableError(f"{before.id} is offered: accept or decline it first.")
        if has_begun(before, now) and (span.start != before.span.start or _elsewhere(before, wanted)):
            raise NotChangeableError(f"{before.id} has begun: its start and its node can't change, its end can.")
    waits_until = before.waits_until
    if before.status is BookingStatus.WAITING and span.start != before.span.start:
        waits_until = span.start
    why = booked_reason(span) if before.status is BookingStatus.CONFIRMED else before.why
    if before.status is BookingStatus.ACTIVE and before.why.code is not BookingReason.WORKLOAD_REFUSED:
        why = Why(BookingReason.IN_SLOT, f"The slot runs until {span.end:%Y-%m-%dT%H:%M:%SZ}.")
    return replace(
        before,
        title=change.title if "title" in named else before.title,
        wanted=wanted,
        span=span,
        waits_until=waits_until,
        why=why,
    )


def _elsewhere(before: Booking, wanted: Wanted) -> bool:
    return wanted.node is not None and any(card.node != wanted.node for card in before.cards)


async def _move(uow: UnitOfWork, principal: Principal, who: Booker, before: Booking, after: Booking) -> Booking:
    had = tuple(ChosenGpu(card.gpu_id, card.rank) for card in before.cards)
    for attempt in range(TRIES):
        if attempt == LOCK_CALENDAR_AFTER:
            await uow.bookings.lock_calendar()
        now = await uow.now()
        if has_begun(before, now):
            await _check_end(uow, after, now)
        chosen = await _cards_for(uow, who, before, after, had, now)
        changed = ChangedBooking(before, after, chosen, keeps_cards=set(chosen) == set(had))
        if await uow.bookings.change(changed, principal.user, BookingEventKind.MOVED, now):
            if after.span.length > before.span.length:
                await spend(uow, principal, [booking_ask(after, before.span.length)], now)
            wake_listeners(uow)
            return await stored(uow, before.id)
    raise NotBookableError("Others took these GPUs at the same time, again and again. Send the request again.")


async def _cards_for(
    uow: UnitOfWork, who: Booker, before: Booking, after: Booking, had: tuple[ChosenGpu, ...], now: datetime
) -> tuple[ChosenGpu, ...]:
    """The GPUs of the changed booking. Raises NotBookableError."""
    within = before.span.start <= after.span.start and after.span.end <= before.span.end
    same_place = not _elsewhere(before, after.wanted)
    if within and same_place and had and (after.span.start == before.span.start or not timing(after.span, now)):
        return had  # a shorter slot on the same GPUs breaks no rule
    begun = has_begun(before, now)
    cards = await cards_around(uow, after.span, now, without=(before.id,))
    judge = await judge_for(uow, who, after.wanted, cards, now, replaces=before.id, begun=begun)
    able, broken = permitted(judge, cards, after.span, keeps_start=before.span.start == after.span.start)
    if before.status is BookingStatus.WAITING and not broken:
        return ()
    if begun:
        await _check_longer(uow, before, after, cards, broken)
        return had
    chosen = choose(able, after.wanted, *from_now(after.span, now), keep=had) if able else None
    if chosen is None:
        if before.status is not BookingStatus.WAITING:
            keeps_start = before.span.start == after.span.start
            broken = reasons(judge, cards, after.span, keeps_start=keeps_start, keep=had)
        raise await refusal(uow, judge, after.span, broken)
    return chosen


_LONGER = "Extend it until then."


def _whose(following: CalendarEntry | None) -> tuple[str, str]:
    """The next holder of the GPUs, with and without its name."""
    if following is None:
        return ("somebody else's", "somebody else's")
    if following.kind is ReservationKind.MAINTENANCE:
        return (f"in maintenance ({following.id})", f"in maintenance ({following.id})")
    how = "promised to {}, which waits for them," if following.planned else "given to {}"
    return (how.format(f"{following.id} of {following.user}"), how.format("somebody else"))


async def _check_longer(
    uow: UnitOfWork, before: Booking, after: Booking, cards: Sequence[BookableGpu], broken: Sequence[RuleBreach]
) -> None:
    """Check that the GPUs of a booking that has begun are free until its new end.

    Raises NotBookableError with their next holder and the time.
    """
    begin, end = to_micros(before.span.end), to_micros(after.span.end)
    mine = {card.gpu_id for card in before.cards}
    taken = [at for card in cards if card.gpu_id in mine for at, until in card.busy if at < end and begin < until]
    if taken:
        free_until = to_moment(max(min(taken), begin))
        entries = (await uow.bookings.entries(before.span.end, after.span.end, sorted(mine))).single
        following = next((entry for entry in entries if entry.id != before.id and entry.span.start <= free_until), None)
        named, nameless = (
            [
                *broken,
                RuleBreach("no_free_gpus", f"Its GPUs are {whose} from {free_until:%Y-%m-%dT%H:%M:%SZ} on. {_LONGER}"),
            ]
            for whose in _whose(following)
        )
        raise NotBookableError(
            " ".join(breach.detail for breach in named),
            named,
            nameless=NotBookableError(" ".join(breach.detail for breach in nameless), nameless),
            owner_id=None if following is None else following.user_id,
        )
    if broken:
        raise NotBookableError(" ".join(breach.detail for breach in broken), broken)


async def _check_end(uow: UnitOfWork, after: Booking, now: datetime) -> None:
    """Check that a booking that has begun ends in the future, and not before its running jobs.

    Raises NotChangeableError and CalendarConflictError.
    """
    if after.span.end <= now:
        raise NotChangeableError(f"{after.id} can't end in the past. To end it now, cancel it.")
    longer = [job for job, until in await uow.bookings.taken_within(after.id) if until > after.span.end]
    if longer:
        raise CalendarConflictError(
            f"{after.id} would end before {', '.join(longer)} in it. Cancel {'it' if len(longer) == 1 else 'them'} "
            "first, or choose a later end."
        )

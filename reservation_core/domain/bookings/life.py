"""The life of a booking: which events move it where, and what has to be done about it.

`waiting → offered → confirmed → active → ended | released | cancelled | expired`

`transition` decides one event; `advance` asks what is due by the clock and decides that, until nothing is. Both are
level-triggered: what is late, doubled or out of order changes nothing (no effects), what a person asks for in vain is a
typed error. Warnings are due at moments, and a mark remembers until when they were given: whoever moves a booking moves
its warnings, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import assert_never

from reservation_core.domain.bookings.changes import (
    Accepted,
    BeginsLater,
    Booked,
    BookingEffect,
    BookingEvent,
    Cancelled,
    CutShort,
    DecidedBookingChange,
    Declined,
    EndingSoon,
    GiveBack,
    GraceOver,
    HoldCards,
    MovedAway,
    NoShowLooms,
    Offered,
    OfferRanOut,
    SlotOver,
    StartingSoon,
    StartReached,
    StartWorkload,
    UsedBy,
    WaitRanOut,
    WorkloadRefused,
)
from reservation_core.domain.bookings.nouns import FINAL_BOOKINGS, Booking, BookingReason, Span, Why
from reservation_core.domain.bookings.warnings import end_warning_due, start_warning_due, warns_of_no_show_at
from reservation_core.domain.changes import SYSTEM, Record, WakePlanner
from reservation_core.domain.errors import AlreadyFinalError, NotOfferedError
from reservation_core.domain.event_kinds import BookingEventKind
from reservation_core.domain.model import BookingStatus

Decided = tuple[Booking, tuple[BookingEffect, ...]]


@dataclass(frozen=True, slots=True)
class BookingRules:
    """When warnings are given: seconds before the start, and before the end."""

    starting_soon_s: Sequence[int]
    ending_soon_s: Sequence[int]


@dataclass(frozen=True, slots=True)
class BookingFacts:
    """The facts around a booking. `used_by`: the first job or pod that ran in it, and since when.

    `busy`: jobs in it start or run; `held`: pods of it may be on cards, be they ending. `late`: whose pods still hold
    cards of it although their time is over. `grace`: how long it may stay unused (None: as long as it lasts).
    `failed_workload`: the job that its workload became, which failed before it ever ran, and why.
    """

    used_by: tuple[str, datetime] | None = None
    busy: bool = False
    held: bool = False
    late: tuple[str, ...] = ()
    grace: timedelta | None = None
    failed_workload: tuple[str, str] | None = None


def transition(booking: Booking, event: BookingEvent, now: datetime) -> Decided:  # noqa: C901 - one arm an event
    """Decide what an event does to a booking.

    Returns the booking afterwards and the effects to carry out; the same booking and none when the event says nothing
    new. Raises AlreadyFinalError or NotOfferedError for what a person asks in vain.
    """
    match event:
        case StartReached():
            return _start(booking, event, now)
        case SlotOver():
            return _over(booking, now)
        case UsedBy():
            return _used(booking, event)
        case WorkloadRefused():
            return _workload_refused(booking, event)
        case StartingSoon() | EndingSoon():
            return _warn(booking, event, now)
        case NoShowLooms():
            return _warn_of_no_show(booking, now)
        case GraceOver():
            return _release(booking, now)
        case Offered() | Booked():
            return _serve(booking, event, now)
        case Accepted():
            return _accept(booking, event, now)
        case Declined():
            return _decline(booking, event, now)
        case OfferRanOut() | WaitRanOut():
            return _run_out(booking, event, now)
        case Cancelled():
            return _cancel(booking, event, now)
        case MovedAway() | CutShort() | BeginsLater():
            return _make_room(booking, event, now)
        case _:
            assert_never(event)


def decide(booking: Booking, event: BookingEvent, now: datetime) -> DecidedBookingChange | None:
    """Like `transition`, as a change to write; None when there is nothing to do."""
    after, effects = transition(booking, event, now)
    return None if after is booking and not effects else DecidedBookingChange(booking, after, effects, now)


def due(booking: Booking, facts: BookingFacts, rules: BookingRules, now: datetime) -> BookingEvent | None:
    """What the clock asks of a booking first; None when nothing is due."""
    match booking.status:
        case BookingStatus.WAITING:
            return WaitRanOut() if now >= booking.waits_at_most_until else None
        case BookingStatus.OFFERED:
            return OfferRanOut() if now >= booking.offered_at_most_until else None
        case BookingStatus.CONFIRMED:
            if now >= booking.span.start:
                return StartReached(facts.grace, facts.late)
            return StartingSoon() if start_warning_due(booking, rules.starting_soon_s, now) else None
        case BookingStatus.ACTIVE:
            return _due_while_active(booking, facts, rules, now)
        case BookingStatus.ENDED | BookingStatus.RELEASED | BookingStatus.CANCELLED | BookingStatus.EXPIRED:
            return None
        case _:
            assert_never(booking.status)


def advance(booking: Booking, facts: BookingFacts, rules: BookingRules, now: datetime) -> list[DecidedBookingChange]:
    """Everything that is due, in order; nothing when nothing is. Whatever was missed meanwhile is made up for.

    Of each kind of event, one a look.
    """
    changes: list[DecidedBookingChange] = []
    kinds: set[type] = set()
    while (event := due(booking, facts, rules, now)) is not None and type(event) not in kinds:
        change = decide(booking, event, now)
        if change is None:
            break
        kinds.add(type(event))
        changes.append(change)
        booking = change.after
    return changes


def _due_while_active(booking: Booking, facts: BookingFacts, rules: BookingRules, now: datetime) -> BookingEvent | None:
    if booking.used_at is None and facts.used_by is not None:
        return UsedBy(*facts.used_by)
    if now >= booking.span.end:
        # Nothing may lie within a booking that is closed: what still runs there is ended first.
        return None if facts.busy else SlotOver()
    if facts.failed_workload is not None and booking.why.code is not BookingReason.WORKLOAD_REFUSED:
        return WorkloadRefused(detail=facts.failed_workload[1], job_id=facts.failed_workload[0])
    release_at = booking.release_at
    unused = booking.used_at is None and not (facts.busy or facts.held)
    # A grace that outlasts the slot means nothing, until the slot is extended.
    if unused and release_at is not None and release_at < booking.span.end:
        if booking.no_show_warned_at is None and now >= warns_of_no_show_at(booking):
            return NoShowLooms()
        if booking.no_show_warned_at is not None and now >= release_at:
            return GraceOver()
    return EndingSoon() if end_warning_due(booking, rules.ending_soon_s, now) else None


def _start(booking: Booking, event: StartReached, now: datetime) -> Decided:
    if booking.status is not BookingStatus.CONFIRMED or now < booking.span.start:
        return booking, ()
    after = replace(
        booking,
        status=BookingStatus.ACTIVE,
        why=Why(BookingReason.IN_SLOT, f"The slot runs until {_said(booking.span.end)}."),
        activated_at=now,
        # A user who is notified late that the slot has begun has the whole grace from then on.
        release_at=None if event.grace is None else now + event.grace,
    )
    effects: list[BookingEffect] = [Record(BookingEventKind.STARTED, data={"ends_at": booking.span.end.isoformat()})]
    if event.late:
        effects.append(Record(BookingEventKind.START_PROMISE_MISSED, data={"late": list(event.late)}))
    if booking.workload is not None and booking.started_job is None and now < booking.span.end:
        effects.append(StartWorkload())
    return after, (*effects, WakePlanner())


def _over(booking: Booking, now: datetime) -> Decided:
    if booking.status is not BookingStatus.ACTIVE or now < booking.span.end:
        return booking, ()
    detail = f"The slot ended at {_said(booking.span.end)}."
    return _closed(booking, BookingStatus.ENDED, Why(BookingReason.SLOT_OVER, detail), now, BookingEventKind.ENDED)


def _used(booking: Booking, event: UsedBy) -> Decided:
    if booking.status is not BookingStatus.ACTIVE or booking.used_at is not None:
        return booking, ()
    return replace(booking, used_at=event.at), ()


def _workload_refused(booking: Booking, event: WorkloadRefused) -> Decided:
    """The booking goes on: its owner can still run what would be taken."""
    if booking.status is not BookingStatus.ACTIVE or booking.why.code is BookingReason.WORKLOAD_REFUSED:
        return booking, ()
    advice = f"Start a job in it (`booking_id` {booking.id}), or cancel it so that others can use its GPUs."
    # What maintenance said of it stays: where it goes on, for one.
    said = booking.why.detail.removeprefix(f"The slot runs until {_said(booking.span.end)}.")
    why = Why(BookingReason.WORKLOAD_REFUSED, f"Its workload could not start. {event.detail} {advice}{said}")
    # Of a job that has failed its owner is told by the job's own record.
    kind = BookingEventKind.WORKLOAD_REFUSED if event.job_id is None else BookingEventKind.WORKLOAD_FAILED
    data = {"detail": event.detail} if event.job_id is None else {"detail": event.detail, "job": event.job_id}
    return replace(booking, why=why), (Record(kind, data=data),)


def _warn(booking: Booking, event: StartingSoon | EndingSoon, now: datetime) -> Decided:
    """The nearest warning stands for those that were missed before it."""
    match event:
        case StartingSoon():
            if booking.status is not BookingStatus.CONFIRMED or now >= booking.span.start:
                return booking, ()
            left = int((booking.span.start - now).total_seconds())
            data = {"starts_at": booking.span.start.isoformat(), "seconds_left": left}
            return replace(booking, start_warned_at=now), (Record(BookingEventKind.STARTING_SOON, data=data),)
        case EndingSoon():
            if booking.status is not BookingStatus.ACTIVE or now >= booking.span.end:
                return booking, ()
            left = int((booking.span.end - now).total_seconds())
            data = {"ends_at": booking.span.end.isoformat(), "seconds_left": left}
            return replace(booking, end_warned_at=now), (Record(BookingEventKind.ENDING_SOON, data=data),)
        case _:
            assert_never(event)


def _warn_of_no_show(booking: Booking, now: datetime) -> Decided:
    """Half the grace stays after the warning, however late the warning comes."""
    if (
        booking.status is not BookingStatus.ACTIVE
        or booking.release_at is None
        or booking.used_at is not None
        or booking.no_show_warned_at is not None
        or now < warns_of_no_show_at(booking)
    ):
        return booking, ()
    begun = booking.activated_at or booking.span.start
    release_at = max(booking.release_at, now + (booking.release_at - begun) / 2)
    data = {"release_at": release_at.isoformat()}
    return replace(booking, no_show_warned_at=now, release_at=release_at), (
        Record(BookingEventKind.NO_SHOW_WARNING, data=data),
    )


def _release(booking: Booking, now: datetime) -> Decided:
    if (
        booking.status is not BookingStatus.ACTIVE
        or booking.used_at is not None
        or booking.no_show_warned_at is None
        or booking.release_at is None
        or now < booking.release_at
        or now >= booking.span.end
    ):
        return booking, ()
    detail = "Nothing ran in it within its grace, so the rest was given back. Book again, and start a job in it."
    return _closed(booking, BookingStatus.RELEASED, Why(BookingReason.NOT_USED, detail), now, BookingEventKind.RELEASED)


def _serve(booking: Booking, event: Offered | Booked, now: datetime) -> Decided:
    """Cards came free for a request that waits: it is asked, or has them at once."""
    if booking.status is not BookingStatus.WAITING or now >= booking.waits_at_most_until:
        return booking, ()
    held = HoldCards(event.cards)
    booking = replace(booking, wanted=replace(booking.wanted, gpu_type=event.gpu_type))
    match event:
        case Offered():
            until = min(event.until, booking.span.start)
            detail = f"GPUs are kept for you until {_said(until)}: accept or decline them."
            why = Why(BookingReason.OFFERED, detail)
            after = replace(booking, status=BookingStatus.OFFERED, why=why, offer_until=until)
            return after, (
                held,
                WakePlanner(),
                Record(BookingEventKind.OFFERED, data={"offer_until": until.isoformat()}),
            )
        case Booked():
            after = replace(booking, status=BookingStatus.CONFIRMED, why=_booked(booking))
            return after, (held, WakePlanner(), Record(BookingEventKind.CONFIRMED))
        case _:
            assert_never(event)


def _accept(booking: Booking, event: Accepted, now: datetime) -> Decided:
    if booking.status in (BookingStatus.CONFIRMED, BookingStatus.ACTIVE):
        return booking, ()
    _require_offered(booking, now)
    after = replace(booking, status=BookingStatus.CONFIRMED, why=_booked(booking), offer_until=None)
    return after, (Record(BookingEventKind.CONFIRMED, event.actor),)


def _decline(booking: Booking, event: Declined, now: datetime) -> Decided:
    if booking.status is BookingStatus.CANCELLED and booking.why.code is BookingReason.DECLINED:
        return booking, ()
    _require_offered(booking, now)
    why = Why(BookingReason.DECLINED, f"The offer was declined by {event.actor}.")
    return _closed(booking, BookingStatus.CANCELLED, why, now, BookingEventKind.CANCELLED, event.actor)


def _require_offered(booking: Booking, now: datetime) -> None:
    if booking.status in FINAL_BOOKINGS:
        raise AlreadyFinalError(f"{booking.id} is over ({booking.status.value}): {booking.why.detail}")
    if booking.status is not BookingStatus.OFFERED:
        raise NotOfferedError(f"{booking.id} is {booking.status.value}: there is no offer to answer.")
    if now >= booking.offered_at_most_until:
        raise NotOfferedError(f"The offer for {booking.id} ran out at {_said(booking.offered_at_most_until)}.")


def _run_out(booking: Booking, event: OfferRanOut | WaitRanOut, now: datetime) -> Decided:
    match event:
        case OfferRanOut():
            if booking.status is not BookingStatus.OFFERED or now < booking.offered_at_most_until:
                return booking, ()
            detail = f"The offer was not answered by {_said(booking.offered_at_most_until)}. Book another time."
            why = Why(BookingReason.OFFER_RAN_OUT, detail)
            return _closed(booking, BookingStatus.EXPIRED, why, now, BookingEventKind.OFFER_EXPIRED)
        case WaitRanOut():
            if booking.status is not BookingStatus.WAITING or now < booking.waits_at_most_until:
                return booking, ()
            detail = f"Nothing came free for it by {_said(booking.waits_at_most_until)}. Book another time."
            why = Why(BookingReason.WAITED_IN_VAIN, detail)
            return _closed(booking, BookingStatus.EXPIRED, why, now, BookingEventKind.WAIT_EXPIRED)
        case _:
            assert_never(event)


def _cancel(booking: Booking, event: Cancelled, now: datetime) -> Decided:
    if booking.status in FINAL_BOOKINGS:
        raise AlreadyFinalError(f"{booking.id} is over ({booking.status.value}); there is nothing to cancel.")
    code = BookingReason.CANCELLED_BY_ADMIN if event.by_admin else BookingReason.CANCELLED_BY_USER
    why = Why(code, " ".join(filter(None, (f"Cancelled by {event.actor}.", event.why))))
    return _closed(booking, BookingStatus.CANCELLED, why, now, BookingEventKind.CANCELLED, event.actor)


def _make_room(booking: Booking, event: MovedAway | CutShort | BeginsLater, now: datetime) -> Decided:
    """An administrator needs cards of it: it has others, or ends early."""
    if booking.status not in (BookingStatus.OFFERED, BookingStatus.CONFIRMED, BookingStatus.ACTIVE):
        return booking, ()
    match event:
        case MovedAway():
            record = Record(BookingEventKind.MOVED, event.actor, {"why": event.why, "where": event.where})
            after = replace(booking, why=Why(BookingReason.MOVED, f"It is on {event.where} now. {event.why}"))
            return after, (GiveBack(now), HoldCards(event.cards), WakePlanner(), record)
        case BeginsLater():
            times = {"starts_at": booking.span.start.isoformat(), "ends_at": event.at.isoformat()}
            record = Record(BookingEventKind.MAINTENANCE_AFFECTS, event.actor, {"why": event.why, **times})
            later = replace(booking, span=Span(event.at, booking.span.end))
            after = replace(later, why=Why(BookingReason.BOOKED, f"{_booked(later).detail} {event.why}"))
            return after, (GiveBack(now), HoldCards(event.cards), WakePlanner(), record)
        case CutShort():
            times = {"starts_at": event.at.isoformat(), "ends_at": event.until.isoformat()}
            why = event.why if event.goes_on is None else f"{event.why} {event.goes_on}"
            record = Record(BookingEventKind.MAINTENANCE_AFFECTS, event.actor, {"why": why, **times})
            if event.at <= max(booking.span.start, now):
                return _taken_away(booking, event, now, record)
            if event.at >= booking.span.end:
                return booking, ()
            after = replace(booking, span=Span(booking.span.start, event.at))
            if after.status is BookingStatus.ACTIVE:
                # The code of a refused workload stays: it is what keeps that from being told again.
                refused = booking.why.code is BookingReason.WORKLOAD_REFUSED
                said = booking.why.detail if refused else f"The slot runs until {_said(event.at)}."
                after = replace(after, why=Why(booking.why.code, f"{said} {why}"))
            elif after.status is BookingStatus.CONFIRMED:
                after = replace(after, why=Why(BookingReason.BOOKED, f"{_booked(after).detail} {why}"))
            return after, (GiveBack(event.at, closing=False), WakePlanner(), record)
        case _:
            assert_never(event)


def _taken_away(booking: Booking, event: CutShort, now: datetime, record: Record) -> Decided:
    """Nothing of it is left: what has begun has ended, what has not is cancelled."""
    why = Why(BookingReason.MAINTENANCE, f"{event.why} {event.goes_on or 'Book another time.'}")
    begun = booking.status is BookingStatus.ACTIVE
    status = BookingStatus.ENDED if begun else BookingStatus.CANCELLED
    kind = BookingEventKind.ENDED if begun else BookingEventKind.CANCELLED
    after, effects = _closed(booking, status, why, now, kind, event.actor)
    return after, (record, *effects)


def _closed(
    booking: Booking, status: BookingStatus, why: Why, now: datetime, kind: BookingEventKind, actor: str = SYSTEM
) -> Decided:
    after = replace(booking, status=status, why=why, finished_at=now, offer_until=None)
    return after, (GiveBack(now), WakePlanner(), Record(kind, actor))


def _booked(booking: Booking) -> Why:
    return Why(BookingReason.BOOKED, f"Booked from {_said(booking.span.start)} to {_said(booking.span.end)}.")


def _said(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"

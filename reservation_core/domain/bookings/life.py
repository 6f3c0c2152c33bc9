"""The life of a booking: its transitions, and the effects of each.

`waiting → offered → confirmed → active → ended | released | cancelled | expired`

A late, repeated or out-of-order event changes nothing (no effects), and an impossible request of a person is a typed
error. `due_changes` says which events the clock makes due.
"""

from dataclasses import replace
from datetime import datetime
from typing import assert_never

from reservation_core.domain.bookings.asked_slots import Span
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
    HoldGpus,
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
from reservation_core.domain.bookings.nouns import FINAL_BOOKINGS, Booking, Why
from reservation_core.domain.bookings.warnings import warns_of_no_show_at
from reservation_core.domain.changes import SYSTEM, Record, WakePlanner
from reservation_core.domain.errors import AlreadyFinalError, NotOfferedError
from reservation_core.domain.event_kinds import BookingEventKind
from reservation_core.domain.statuses import BookingReason, BookingStatus

Decision = tuple[Booking, tuple[BookingEffect, ...]]


def transition(booking: Booking, event: BookingEvent, now: datetime) -> Decision:  # noqa: C901 - one arm an event
    """Decide what an event does to a booking.

    Returns the booking afterwards and the effects to carry out; the same booking and no effects if nothing changes.
    Raises AlreadyFinalError or NotOfferedError for impossible requests of a person.
    """
    match event:
        case StartReached():
            return _start(booking, event, now)
        case SlotOver():
            return _end(booking, now)
        case UsedBy():
            return _use(booking, event)
        case WorkloadRefused():
            return _refuse_workload(booking, event)
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
    """Like `transition`, as a change to write; None if nothing changes."""
    after, effects = transition(booking, event, now)
    return None if after is booking and not effects else DecidedBookingChange(booking, after, effects, now)


def _start(booking: Booking, event: StartReached, now: datetime) -> Decision:
    if booking.status is not BookingStatus.CONFIRMED or now < booking.span.start:
        return booking, ()
    after = replace(
        booking,
        status=BookingStatus.ACTIVE,
        why=Why(BookingReason.IN_SLOT, f"The slot runs until {_timestamp(booking.span.end)}."),
        activated_at=now,
        # The grace counts from the notification, even if that is late.
        release_at=None if event.grace is None else now + event.grace,
    )
    effects: list[BookingEffect] = [Record(BookingEventKind.STARTED, data={"ends_at": booking.span.end.isoformat()})]
    if event.late:
        effects.append(Record(BookingEventKind.START_PROMISE_MISSED, data={"late": list(event.late)}))
    if booking.workload is not None and booking.started_job is None and now < booking.span.end:
        effects.append(StartWorkload())
    return after, (*effects, WakePlanner())


def _end(booking: Booking, now: datetime) -> Decision:
    if booking.status is not BookingStatus.ACTIVE or now < booking.span.end:
        return booking, ()
    detail = f"The slot ended at {_timestamp(booking.span.end)}."
    return _close(booking, BookingStatus.ENDED, Why(BookingReason.SLOT_OVER, detail), now, BookingEventKind.ENDED)


def _use(booking: Booking, event: UsedBy) -> Decision:
    if booking.status is not BookingStatus.ACTIVE or booking.used_at is not None:
        return booking, ()
    return replace(booking, used_at=event.at), ()


def _refuse_workload(booking: Booking, event: WorkloadRefused) -> Decision:
    """Keep the booking: its owner can still start another job in it."""
    if booking.status is not BookingStatus.ACTIVE or booking.why.code is BookingReason.WORKLOAD_REFUSED:
        return booking, ()
    command = f"gpu-dev run --booking {booking.id} --gpus 1 --for 1h -- COMMAND"
    advice = f"Start a job in it (`{command}`), or cancel it so that others can use its GPUs."
    # Details of maintenance stay, such as where the booking continues.
    kept = booking.why.detail.removeprefix(f"The slot runs until {_timestamp(booking.span.end)}.")
    why = Why(BookingReason.WORKLOAD_REFUSED, f"Its workload could not start. {event.detail} {advice}{kept}")
    # For a failed job, the job's own event notifies the owner.
    kind = BookingEventKind.WORKLOAD_REFUSED if event.job_id is None else BookingEventKind.WORKLOAD_FAILED
    data = {"detail": event.detail} if event.job_id is None else {"detail": event.detail, "job": event.job_id}
    return replace(booking, why=why), (Record(kind, data=data),)


def _warn(booking: Booking, event: StartingSoon | EndingSoon, now: datetime) -> Decision:
    """One warning covers the earlier ones that were missed."""
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


def _warn_of_no_show(booking: Booking, now: datetime) -> Decision:
    """Warn, and leave half the grace after the warning, even if the warning is late."""
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


def _release(booking: Booking, now: datetime) -> Decision:
    if (
        booking.status is not BookingStatus.ACTIVE
        or booking.used_at is not None
        or booking.no_show_warned_at is None
        or booking.release_at is None
        or now < booking.release_at
        or now >= booking.span.end
    ):
        return booking, ()
    detail = "Nothing ran in it within its grace time, so the rest was released. Book again, and start a job in it."
    return _close(booking, BookingStatus.RELEASED, Why(BookingReason.NOT_USED, detail), now, BookingEventKind.RELEASED)


def _serve(booking: Booking, event: Offered | Booked, now: datetime) -> Decision:
    """Offer freed GPUs to a waiting booking, or confirm it at once."""
    if booking.status is not BookingStatus.WAITING or now >= booking.waits_at_most_until:
        return booking, ()
    held = HoldGpus(event.cards)
    booking = replace(booking, wanted=replace(booking.wanted, gpu_type=event.gpu_type))
    match event:
        case Offered():
            until = min(event.until, booking.span.start)
            detail = f"GPUs are kept for you until {_timestamp(until)}: accept or decline them."
            why = Why(BookingReason.OFFERED, detail)
            after = replace(booking, status=BookingStatus.OFFERED, why=why, offer_until=until)
            return after, (
                held,
                WakePlanner(),
                Record(BookingEventKind.OFFERED, data={"offer_until": until.isoformat()}),
            )
        case Booked():
            after = replace(booking, status=BookingStatus.CONFIRMED, why=_booked_reason(booking))
            return after, (held, WakePlanner(), Record(BookingEventKind.CONFIRMED))
        case _:
            assert_never(event)


def _accept(booking: Booking, event: Accepted, now: datetime) -> Decision:
    if booking.status in (BookingStatus.CONFIRMED, BookingStatus.ACTIVE):
        return booking, ()
    _require_offered(booking, now)
    after = replace(booking, status=BookingStatus.CONFIRMED, why=_booked_reason(booking), offer_until=None)
    return after, (Record(BookingEventKind.CONFIRMED, event.actor),)


def _decline(booking: Booking, event: Declined, now: datetime) -> Decision:
    if booking.status is BookingStatus.CANCELLED and booking.why.code is BookingReason.DECLINED:
        return booking, ()
    _require_offered(booking, now)
    why = Why(BookingReason.DECLINED, f"The offer was declined by {event.actor}.")
    return _close(booking, BookingStatus.CANCELLED, why, now, BookingEventKind.CANCELLED, event.actor)


def _require_offered(booking: Booking, now: datetime) -> None:
    if booking.status in FINAL_BOOKINGS:
        raise AlreadyFinalError(f"{booking.id} is over ({booking.status.value}): {booking.why.detail}")
    if booking.status is not BookingStatus.OFFERED:
        raise NotOfferedError(f"{booking.id} is {booking.status.value}: there is no offer to answer.")
    if now >= booking.offered_at_most_until:
        raise NotOfferedError(f"The offer for {booking.id} ran out at {_timestamp(booking.offered_at_most_until)}.")


def _run_out(booking: Booking, event: OfferRanOut | WaitRanOut, now: datetime) -> Decision:
    match event:
        case OfferRanOut():
            if booking.status is not BookingStatus.OFFERED or now < booking.offered_at_most_until:
                return booking, ()
            detail = f"The offer was not answered by {_timestamp(booking.offered_at_most_until)}. Book another time."
            why = Why(BookingReason.OFFER_RAN_OUT, detail)
            return _close(booking, BookingStatus.EXPIRED, why, now, BookingEventKind.OFFER_EXPIRED)
        case WaitRanOut():
            if booking.status is not BookingStatus.WAITING or now < booking.waits_at_most_until:
                return booking, ()
            detail = f"Nothing came free for it by {_timestamp(booking.waits_at_most_until)}. Book another time."
            why = Why(BookingReason.WAITED_IN_VAIN, detail)
            return _close(booking, BookingStatus.EXPIRED, why, now, BookingEventKind.WAIT_EXPIRED)
        case _:
            assert_never(event)


def _cancel(booking: Booking, event: Cancelled, now: datetime) -> Decision:
    if booking.status in FINAL_BOOKINGS:
        raise AlreadyFinalError(f"{booking.id} is over ({booking.status.value}); there is nothing to cancel.")
    code = BookingReason.CANCELLED_BY_ADMIN if event.by_admin else BookingReason.CANCELLED_BY_USER
    why = Why(code, " ".join(filter(None, (f"Cancelled by {event.actor}.", event.why))))
    return _close(booking, BookingStatus.CANCELLED, why, now, BookingEventKind.CANCELLED, event.actor)


def _make_room(booking: Booking, event: MovedAway | CutShort | BeginsLater, now: datetime) -> Decision:
    """Move the booking to other GPUs, let it begin later, or end it early."""
    if booking.status not in (BookingStatus.OFFERED, BookingStatus.CONFIRMED, BookingStatus.ACTIVE):
        return booking, ()
    match event:
        case MovedAway():
            record = Record(BookingEventKind.MOVED, event.actor, {"why": event.why, "where": event.where})
            after = replace(booking, why=Why(BookingReason.MOVED, f"It is on {event.where} now. {event.why}"))
            return after, (GiveBack(now), HoldGpus(event.cards), WakePlanner(), record)
        case BeginsLater():
            times = {"starts_at": booking.span.start.isoformat(), "ends_at": event.at.isoformat()}
            record = Record(BookingEventKind.MAINTENANCE_AFFECTS, event.actor, {"why": event.why, **times})
            later = replace(booking, span=Span(event.at, booking.span.end))
            after = replace(later, why=Why(BookingReason.BOOKED, f"{_booked_reason(later).detail} {event.why}"))
            return after, (GiveBack(now), HoldGpus(event.cards), WakePlanner(), record)
        case CutShort():
            times = {"starts_at": event.at.isoformat(), "ends_at": event.until.isoformat()}
            why = event.why if event.goes_on is None else f"{event.why} {event.goes_on}"
            record = Record(BookingEventKind.MAINTENANCE_AFFECTS, event.actor, {"why": why, **times})
            if event.at <= max(booking.span.start, now):
                return _take_away(booking, event, now, record)
            if event.at >= booking.span.end:
                return booking, ()
            after = replace(booking, span=Span(booking.span.start, event.at))
            if after.status is BookingStatus.ACTIVE:
                # The code of a refused workload stays, so that its owner is notified only once.
                refused = booking.why.code is BookingReason.WORKLOAD_REFUSED
                detail = booking.why.detail if refused else f"The slot runs until {_timestamp(event.at)}."
                after = replace(after, why=Why(booking.why.code, f"{detail} {why}"))
            elif after.status is BookingStatus.CONFIRMED:
                after = replace(after, why=Why(BookingReason.BOOKED, f"{_booked_reason(after).detail} {why}"))
            return after, (GiveBack(event.at, closing=False), WakePlanner(), record)
        case _:
            assert_never(event)


def _take_away(booking: Booking, event: CutShort, now: datetime, record: Record) -> Decision:
    """End an active booking, cancel any other: nothing of it is left."""
    why = Why(BookingReason.MAINTENANCE, f"{event.why} {event.goes_on or 'Book another time.'}")
    begun = booking.status is BookingStatus.ACTIVE
    status = BookingStatus.ENDED if begun else BookingStatus.CANCELLED
    kind = BookingEventKind.ENDED if begun else BookingEventKind.CANCELLED
    after, effects = _close(booking, status, why, now, kind, event.actor)
    return after, (record, *effects)


def _close(
    booking: Booking, status: BookingStatus, why: Why, now: datetime, kind: BookingEventKind, actor: str = SYSTEM
) -> Decision:
    after = replace(booking, status=status, why=why, finished_at=now, offer_until=None)
    return after, (GiveBack(now), WakePlanner(), Record(kind, actor))


def _booked_reason(booking: Booking) -> Why:
    times = f"{_timestamp(booking.span.start)} to {_timestamp(booking.span.end)}"
    return Why(BookingReason.BOOKED, f"Booked from {times}.")


def _timestamp(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"

"""The changes of a booking that the clock makes due.

Late and repeated calls give the same changes in the end. Warnings are due at moments, and a mark in the row says until
when they were given: moving a booking moves its warnings, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_never

from reservation_core.domain.bookings.changes import (
    BookingEvent,
    DecidedBookingChange,
    EndingSoon,
    GraceOver,
    NoShowLooms,
    OfferRanOut,
    SlotOver,
    StartingSoon,
    StartReached,
    UsedBy,
    WaitRanOut,
    WorkloadRefused,
)
from reservation_core.domain.bookings.life import decide
from reservation_core.domain.bookings.nouns import Booking
from reservation_core.domain.bookings.warnings import end_warning_due, start_warning_due, warns_of_no_show_at
from reservation_core.domain.statuses import BookingReason, BookingStatus


@dataclass(frozen=True, slots=True)
class BookingRules:
    """When to warn: seconds before the start, and before the end."""

    starting_soon_s: Sequence[int]
    ending_soon_s: Sequence[int]


@dataclass(frozen=True, slots=True)
class BookingFacts:
    """The facts around a booking. `used_by`: the first job or pod that ran in it, and since when.

    `busy`: jobs in it start or run; `held`: its pods may be on GPUs, even if ending. `late`: reservations whose pods
    still hold its GPUs beyond their time. `grace`: how long it may stay unused (None: until its end).
    `failed_workload`: the job made from its workload that failed before it ran, and why.
    """

    used_by: tuple[str, datetime] | None = None
    busy: bool = False
    held: bool = False
    late: tuple[str, ...] = ()
    grace: timedelta | None = None
    failed_workload: tuple[str, str] | None = None


def due(booking: Booking, facts: BookingFacts, rules: BookingRules, now: datetime) -> BookingEvent | None:
    """The next event that the clock makes due; None when nothing is due."""
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
    """All changes that are due, in order, including missed ones; each kind of event at most once."""
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
        # No job may outlast its booking: end running jobs first.
        return None if facts.busy else SlotOver()
    if facts.failed_workload is not None and booking.why.code is not BookingReason.WORKLOAD_REFUSED:
        return WorkloadRefused(detail=facts.failed_workload[1], job_id=facts.failed_workload[0])
    release_at = booking.release_at
    unused = booking.used_at is None and not (facts.busy or facts.held)
    # A grace longer than the slot has no effect until the slot is extended.
    if unused and release_at is not None and release_at < booking.span.end:
        if booking.no_show_warned_at is None and now >= warns_of_no_show_at(booking):
            return NoShowLooms()
        if booking.no_show_warned_at is not None and now >= release_at:
            return GraceOver()
    return EndingSoon() if end_warning_due(booking, rules.ending_soon_s, now) else None

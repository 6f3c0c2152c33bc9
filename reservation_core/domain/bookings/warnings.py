"""When owners of bookings are warned: before the start, before the end, and if nothing uses the booking."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from reservation_core.domain.bookings.nouns import Booking


def start_warning_due(booking: Booking, before_s: Sequence[int], now: datetime) -> bool:
    """Whether to warn that it starts soon; `before_s` are seconds before its start."""
    given = booking.start_warned_at or booking.created_at
    return _due_between(booking.span.start, before_s, given, now)


def end_warning_due(booking: Booking, before_s: Sequence[int], now: datetime) -> bool:
    """Whether to warn that it ends soon; `before_s` are seconds before its end."""
    given = booking.end_warned_at or booking.activated_at or booking.span.start
    return _due_between(booking.span.end, before_s, given, now)


def warns_of_no_show_at(booking: Booking) -> datetime:
    """When half the grace is over."""
    if booking.release_at is None:
        return booking.span.end
    begun = booking.activated_at or booking.span.start
    return begun + (booking.release_at - begun) / 2


def _due_between(of: datetime, before_s: Sequence[int], given: datetime, now: datetime) -> bool:
    """Whether a warning is due that was not given: those due before `given` were given or are pointless."""
    return any(given < of - timedelta(seconds=before) <= now for before in before_s)

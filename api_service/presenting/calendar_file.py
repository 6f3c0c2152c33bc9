"""A person's bookings as an iCalendar file (RFC 5545), for calendar programs to subscribe to."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING

from reservation_core.domain.bookings.nouns import Booking
from reservation_core.domain.statuses import BookingStatus

if TYPE_CHECKING:
    from icalendar import Event

MEDIA_TYPE = "text/calendar; charset=utf-8"
REFRESH = timedelta(minutes=15)

_FORMAT = 1
"""Part of the file's tag. Increase it when the format of the file changes, so that kept files are fetched again."""

_TENTATIVE = frozenset({BookingStatus.WAITING, BookingStatus.OFFERED})


def calendar_of(user: str, bookings: Iterable[Booking], now: datetime) -> bytes:
    """The file. The library folds lines and escapes texts, so a title can't add a property."""
    # Imported only here: the library takes 50 ms and 3 MB, and most servers are asked for no such file.
    from icalendar import Calendar  # noqa: PLC0415

    calendar = Calendar()
    calendar.add("prodid", "-//GPU Dev Server//bookings//EN")
    calendar.add("version", "2.0")
    calendar.add("method", "PUBLISH")
    calendar.add("x-wr-calname", f"GPUs of {user}")
    calendar.add("refresh-interval", REFRESH, parameters={"VALUE": "DURATION"})
    for booking in bookings:
        calendar.add_component(_event(booking, now))
    return bytes(calendar.to_ical())


def tag_of(user: str, bookings: Iterable[Booking]) -> str:
    """A weak entity tag of the file: the same as long as only its time stamps would differ."""
    digest = sha256(repr((_FORMAT, user)).encode())
    for booking in bookings:
        digest.update(
            repr((booking.id, booking.version, booking.status.value, booking.why.detail, booking.cards)).encode()
        )
    return f'W/"{digest.hexdigest()[:32]}"'


def _event(booking: Booking, now: datetime) -> "Event":
    from icalendar import Event  # noqa: PLC0415 - see calendar_of

    event = Event()
    wanted = booking.wanted
    cards = f"{wanted.gpus * wanted.nodes} x {wanted.gpu_type or 'GPU'}"
    places: dict[str, list[int]] = {}
    for card in booking.cards:
        places.setdefault(card.node, []).append(card.index)
    event.add("uid", f"{booking.id}@gpu-dev")
    event.add("dtstamp", now)
    event.add("sequence", booking.version)
    event.add("dtstart", booking.span.start)
    event.add("dtend", booking.span.end)
    event.add("summary", f"{booking.title} ({cards})" if booking.title else cards)
    event.add("status", "TENTATIVE" if booking.status in _TENTATIVE else "CONFIRMED")
    event.add("location", "; ".join(f"{node} {','.join(map(str, indices))}" for node, indices in places.items()))
    event.add("description", f"{booking.id}: {booking.status.value}. {booking.why.detail}")
    return event

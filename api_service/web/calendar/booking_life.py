"""A booking's life in words: what the record says of it, by whom, and from when to when it then was."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from api_service.web.words import clock
from reservation_core.contracts.audit_log import EventOut
from reservation_core.domain.bookings.nouns import BookingReason
from reservation_core.domain.model import BookingStatus
from reservation_core.usecases.people.users import RESERVED_NAMES

_WORDS = {
    "booking_waitlisted": "put on the waitlist",
    "booking_offered": "offered",
    "booking_changed": "given another title",
    "booking_started": "its time has begun",
    "booking_starting_soon": "told that it begins soon",
    "booking_ending_soon": "told that it ends soon",
    "no_show_warning": "told that nothing runs in it",
    "start_promise_missed": "its GPUs were not free in time",
    "workload_refused": "its workload could not start",
    "workload_failed": "its workload failed",
    "booking_released": "given up",
    "booking_cancelled": "cancelled",
    "booking_ended": "over",
    "booking_offer_expired": "the offer ran out",
    "booking_wait_expired": "waited in vain",
}
# What these say, the line says already: who did it, and the times in the reader's own zone.
_SAID_ALREADY = frozenset(
    {
        BookingReason.WAITING_FOR_SLOT,
        BookingReason.OFFERED,
        BookingReason.BOOKED,
        BookingReason.MOVED,
        BookingReason.IN_SLOT,
        BookingReason.WORKLOAD_REFUSED,
        BookingReason.SLOT_OVER,
        BookingReason.DECLINED,
        BookingReason.CANCELLED_BY_USER,
    }
)


@dataclass(frozen=True, slots=True)
class BookingStep:
    """What happened at a moment. `who` did it; None for the server."""

    at: datetime
    words: str
    why: str | None
    who: str | None


def life_of_booking(newest_first: Sequence[EventOut], zone: ZoneInfo, now: datetime) -> list[BookingStep]:
    """The steps, oldest first, from the events of the booking."""
    return [_step(event, zone, now) for event in reversed(newest_first)]


def _step(event: EventOut, zone: ZoneInfo, now: datetime) -> BookingStep:
    who = None if event.actor in RESERVED_NAMES else event.actor
    return BookingStep(event.at, _words(event, zone, now), _why(event), who)


def _words(event: EventOut, zone: ZoneInfo, now: datetime) -> str:
    kind, data = event.kind, event.data

    def times(*names: str) -> str:
        written = (data.get(name) for name in names)
        return " – ".join(clock(datetime.fromisoformat(at) if at else None, zone, now) for at in written)

    match kind:
        case "booking_confirmed" if event.before is None:
            return f"booked: {times('start', 'end')}"
        case "booking_confirmed":
            taken = "the offer is taken" if event.before == BookingStatus.OFFERED else "came free"
            return f"{taken}: {times('start', 'end')}"
        case "booking_waitlisted":
            return f"{_WORDS[kind]} for {times('start', 'end')}"
        case "booking_moved" if "start_before" in data:
            return f"changed: {times('start', 'end')}, before {times('start_before', 'end_before')}"
        case "booking_moved":
            return "put on other GPUs"
        case "maintenance_affects":
            return f"changed for maintenance: {times('start', 'end')}"
        case _:
            return _WORDS.get(kind, kind.replace("_", " "))


def _why(event: EventOut) -> str | None:
    why = event.data.get("why") or event.data.get("detail")
    if why is not None:
        return str(why)
    if event.before == event.after or event.reason_code in _SAID_ALREADY:
        return None
    return event.reason

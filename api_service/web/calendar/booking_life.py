"""A booking's life in words: what happened, who did it, and its times afterwards."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never
from zoneinfo import ZoneInfo

from api_service.web.words import clock_range
from reservation_core.contracts.audit_log import EventOut
from reservation_core.domain.event_kinds import BookingEventKind, known_kind
from reservation_core.domain.history.event_words import kind_words
from reservation_core.domain.statuses import BookingReason, BookingStatus
from reservation_core.usecases.people.users import RESERVED_NAMES

# The step itself says as much as these reasons: who did it, and the times.
_SAID_BY_THE_STEP = frozenset(
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
    """The steps, oldest first."""
    return [_step(event, zone, now) for event in reversed(newest_first)]


def _step(event: EventOut, zone: ZoneInfo, now: datetime) -> BookingStep:
    who = None if event.actor in RESERVED_NAMES else event.actor
    return BookingStep(event.at, _words(event, zone, now), _why(event), who)


def _words(event: EventOut, zone: ZoneInfo, now: datetime) -> str:  # noqa: C901 - one arm a kind
    kind = known_kind(BookingEventKind, event.kind)
    match kind:
        case None:
            return kind_words(event.kind)
        case BookingEventKind.CONFIRMED:
            return f"{_confirmed(event)}: {_times(event, zone, now)}"
        case BookingEventKind.WAITLISTED:
            return f"put on the waitlist for {_times(event, zone, now)}"
        case BookingEventKind.MOVED if "start_before" in event.data:
            return f"changed: {_times(event, zone, now)}, before {_times(event, zone, now, '_before')}"
        case BookingEventKind.MOVED:
            return "put on other GPUs"
        case BookingEventKind.MAINTENANCE_AFFECTS:
            return f"changed for maintenance: {_times(event, zone, now)}"
        case BookingEventKind.OFFERED:
            return "offered"
        case BookingEventKind.CHANGED:
            return "given another title"
        case BookingEventKind.STARTING_SOON:
            return "begins soon"
        case BookingEventKind.STARTED:
            return "its time has begun"
        case BookingEventKind.START_PROMISE_MISSED:
            return "its GPUs were not free in time"
        case BookingEventKind.WORKLOAD_REFUSED:
            return "its workload could not start"
        case BookingEventKind.WORKLOAD_FAILED:
            return "its workload failed"
        case BookingEventKind.NO_SHOW_WARNING:
            return "nothing runs in it"
        case BookingEventKind.ENDING_SOON:
            return "ends soon"
        case BookingEventKind.ENDED:
            return "over"
        case BookingEventKind.RELEASED:
            return "given up"
        case BookingEventKind.CANCELLED:
            return "cancelled"
        case BookingEventKind.OFFER_EXPIRED:
            return "the offer expired"
        case BookingEventKind.WAIT_EXPIRED:
            return "nothing came free"
        case _:
            assert_never(kind)


def _confirmed(event: EventOut) -> str:
    if event.before is None:
        return "booked"
    return "the offer is accepted" if event.before == BookingStatus.OFFERED else "came free"


def _times(event: EventOut, zone: ZoneInfo, now: datetime, which: str = "") -> str:
    """The slot in the event's data, as `start` and `end` with the suffix `which`."""
    written = (event.data.get(f"{name}{which}") for name in ("start", "end"))
    start, end = (datetime.fromisoformat(at) if at else None for at in written)
    return "–" if start is None or end is None else clock_range(start, end, zone, now)


def _why(event: EventOut) -> str | None:
    why = event.data.get("why") or event.data.get("detail")
    if why is not None:
        return str(why)
    if event.before == event.after or event.reason_code in _SAID_BY_THE_STEP:
        return None
    return event.reason

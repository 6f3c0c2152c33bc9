"""A booking at each stage of its life."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.changes import (
    DecidedBookingChange,
    Offered,
    StartReached,
)
from reservation_core.domain.bookings.due_changes import BookingFacts, BookingRules, advance
from reservation_core.domain.bookings.life import transition
from reservation_core.domain.bookings.nouns import Booking, ChosenGpu, Wanted, Why
from reservation_core.domain.changes import Record
from reservation_core.domain.statuses import BookingReason, BookingStatus

T0 = datetime(2030, 1, 1, 9, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
START, END = T0 + 2 * DAY, T0 + 2 * DAY + 4 * HOUR
CARDS = (ChosenGpu(1, 0), ChosenGpu(2, 0))
RULES = BookingRules((86_400, 3600, 600), (86_400, 3600, 600))
NOTHING = BookingFacts()
GRACE = BookingFacts(grace=30 * MINUTE)
HOLDING = {BookingStatus.OFFERED, BookingStatus.CONFIRMED, BookingStatus.ACTIVE}


def booking(status: BookingStatus = BookingStatus.CONFIRMED, **fields: object) -> Booking:
    """A booking of two h100 for four hours, two days from T0."""
    made = Booking(
        id="bkg-1",
        seq=1,
        user_id=1,
        user="alice",
        title=None,
        project=None,
        status=status,
        why=Why(BookingReason.BOOKED, "Booked."),
        wanted=Wanted(2, 1, "h100"),
        span=Span(START, END),
        workload=None,
        created_at=T0,
        version=1,
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def active(**fields: object) -> Booking:
    """In its slot since its start."""
    return replace(transition(booking(), StartReached(30 * MINUTE), START)[0], **fields)  # type: ignore[arg-type]


def offered(until: datetime = T0 + HOUR) -> Booking:
    return transition(booking(BookingStatus.WAITING), Offered(CARDS, "h100", until), T0)[0]


def kinds(changes: list[DecidedBookingChange]) -> list[str]:
    return [effect.kind for change in changes for effect in change.effects if isinstance(effect, Record)]


def told(effects: tuple[object, ...]) -> list[str]:
    return [effect.kind for effect in effects if isinstance(effect, Record)]


def run(row: Booking, until: datetime, facts: BookingFacts = NOTHING, every: timedelta = MINUTE) -> dict[str, datetime]:
    """Look every so often; when each event was recorded (the last time of each)."""
    seen: dict[str, datetime] = {}
    now = row.created_at
    while now <= until:
        changes = advance(row, facts, RULES, now)
        for kind in kinds(changes):
            seen[kind] = now
        row = changes[-1].after if changes else row
        now += every
    return seen

"""The calendar: when GPUs are taken, and by which reservations."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.bookings.card_choice import BookableGpu, bookable


@dataclass(frozen=True, slots=True)
class CalendarCards:
    """Every GPU as bookings see it at `now` (UTC)."""

    now: datetime
    cards: Sequence[BookableGpu]


async def calendar_cards(uow: UnitOfWork, start: datetime, end: datetime) -> CalendarCards:
    """When GPUs are taken in [start, end); the past counts as free."""
    now = await uow.now()
    cards = await uow.bookings.cards(max(start, now), max(end, now))
    return CalendarCards(now, bookable(cards, now))

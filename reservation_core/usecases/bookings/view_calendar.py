"""What a calendar shows: every card with when it is taken, and, of some cards, by what."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.bookings.card_choice import BookableCard, bookable
from reservation_core.ports.bookings.bookings import CalendarEntry


@dataclass(frozen=True, slots=True)
class CalendarCards:
    """Every card as a booking would find it, at `now` (UTC)."""

    now: datetime
    cards: Sequence[BookableCard]


async def calendar_cards(uow: UnitOfWork, start: datetime, end: datetime) -> CalendarCards:
    """When cards are taken in [start, end). The past is not known here: it counts as free."""
    now = await uow.now()
    found = await uow.bookings.cards(max(start, now), max(end, now))
    return CalendarCards(now, bookable(found, now))


async def calendar_entries(
    uow: UnitOfWork, start: datetime, end: datetime, gpu_ids: Collection[int], only_of: int | None
) -> list[CalendarEntry]:
    """By what these cards are taken in [start, end), also what is over of bookings; `only_of`: only this user's."""
    return await uow.bookings.entries(start, end, gpu_ids, only_of=only_of)

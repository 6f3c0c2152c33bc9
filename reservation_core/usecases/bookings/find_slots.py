"""Find free slots and count free GPUs over time, by the calendar and without the policy."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.bookings.card_choice import bookable
from reservation_core.domain.bookings.nouns import FreeSlot, Wanted
from reservation_core.domain.bookings.refusals import this_minute
from reservation_core.domain.bookings.slot_search import free_counts, free_slots
from reservation_core.domain.errors import LimitExceededError

USUAL_SEARCH = timedelta(days=30)
USUAL_VIEW = timedelta(days=7)
MOST_STEPS = 2000
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class FreeOverTime:
    """By type: the number of GPUs, and the number that is free for the whole of every step from `start` on."""

    start: datetime
    end: datetime
    step: timedelta
    types: dict[str, tuple[int, list[int]]]


async def find_slots(
    uow: UnitOfWork, wanted: Wanted, length: timedelta, start: datetime | None, end: datetime | None
) -> list[FreeSlot]:
    """Find every free slot for the request in [start, end), from the next minute on; by default within 30 days."""
    now = await uow.now()
    begin = max(start or now, this_minute(now) + _MINUTE)
    until = begin + USUAL_SEARCH if end is None else end
    if until <= begin:
        return []
    cards = bookable(await uow.bookings.cards(begin, until), now)
    return free_slots(cards, wanted, length, begin, until)


async def free_over_time(
    uow: UnitOfWork, start: datetime | None, end: datetime | None, step: timedelta
) -> FreeOverTime:
    """Count free GPUs in [start, end), by default the week from this minute on; past times have none.

    Raises LimitExceededError for more than MOST_STEPS steps, or an end that is not after the start.
    """
    now = await uow.now()
    begin = this_minute(now) if start is None else start
    until = begin + USUAL_VIEW if end is None else end
    if not begin < until <= begin + MOST_STEPS * step:
        raise LimitExceededError(
            f"From {begin:%Y-%m-%dT%H:%M:%SZ} to {until:%Y-%m-%dT%H:%M:%SZ} must be 1 to {MOST_STEPS} steps. "
            "Give another `from` or `to`, or a longer `step`."
        )
    cards = bookable(await uow.bookings.cards(max(begin, now), max(until, now)), now)
    return FreeOverTime(begin, until, step, free_counts(cards, begin, until, step))

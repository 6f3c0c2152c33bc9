"""Whether there is anything to do in the calendar just now: asked all the time, and mostly answered with no."""

from dataclasses import dataclass
from typing import Protocol

from reservation_core.domain.bookings.life import BookingRules


@dataclass(frozen=True, slots=True)
class CalendarWork:
    """What a look at the calendar would find something of: what each part of it looks for."""

    disabled_users: bool
    left_over_jobs: bool
    bookings: bool
    windows: bool
    joined_cards: bool
    waitlist: bool


class CalendarDue(Protocol):
    """The calendar's one cheap question."""

    async def work(self, rules: BookingRules) -> CalendarWork:
        """What there is to do by the database's clock. Level-triggered: what comes up later is in the next answer."""
        ...

    async def is_led(self) -> bool:
        """Whether a planner leads, who keeps the calendar, too."""
        ...

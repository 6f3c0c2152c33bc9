"""Due changes of the calendar, asked for in one statement that is made of those which find them."""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection import direct
from reservation_core.adapters.postgres.connection.shared_clock import SharedClock, counted_by
from reservation_core.domain.bookings.life import BookingRules
from reservation_core.ports.bookings.calendar_due import CalendarWork

_QUESTIONS = ("unsettled_users", "left_over_jobs", "due_bookings", "due_windows", "joined_cards", "somebody_waits")


class CalendarDue:
    """The calendar's one cheap question."""

    def __init__(self, connection: AsyncConnection, clock: SharedClock | None = None) -> None:
        self._connection = connection
        self._counted = counted_by(clock)

    async def work(self, rules: BookingRules) -> CalendarWork:
        """What there is to do by the database's clock. Level-triggered: what comes up later is in the next answer."""
        [clock] = await direct.fetch(self._connection, "database_time", {"counted": self._counted()})
        found = await direct.which_find(self._connection, _QUESTIONS, due_parameters(rules, clock["now"], 1))
        return CalendarWork(
            disabled_users=found["unsettled_users"],
            left_over_jobs=found["left_over_jobs"],
            bookings=found["due_bookings"],
            windows=found["due_windows"],
            joined_cards=found["joined_cards"],
            waitlist=found["somebody_waits"],
        )

    async def is_led(self) -> bool:
        """Whether a planner leads, who keeps the calendar, too."""
        [row] = await direct.fetch(self._connection, "lease_is_held", {"counted": self._counted()})
        return bool(row["held"])


def due_parameters(rules: BookingRules, now: datetime, limit: int) -> dict[str, Any]:
    """What the statements need that find what is due."""
    return {
        "now": now,
        "look_ahead": now + timedelta(seconds=max(rules.starting_soon_s, default=0)),
        "starting_soon": [float(seconds) for seconds in rules.starting_soon_s],
        "ending_soon": [float(seconds) for seconds in rules.ending_soon_s],
        "limit": limit,
    }

"""Whether the calendar has due changes, in one statement that combines those which find them."""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection import direct
from reservation_core.adapters.postgres.connection.shared_clock import SharedClock, counted_by
from reservation_core.domain.bookings.due_changes import BookingRules
from reservation_core.ports.bookings.calendar_due import CalendarWork

_QUESTIONS = ("unsettled_users", "left_over_jobs", "due_bookings", "due_windows", "joined_cards", "somebody_waits")


class CalendarDue:
    """Cheap checks for due changes."""

    def __init__(self, connection: AsyncConnection, clock: SharedClock | None = None) -> None:
        self._connection = connection
        self._counted = counted_by(clock)

    async def work(self, rules: BookingRules) -> CalendarWork:
        """The kinds of due work by the database's clock. Level-triggered: later work is in the next answer."""
        [clock] = await direct.fetch(self._connection, "database_time", {"counted": self._counted()})
        due = await direct.which_find(self._connection, _QUESTIONS, due_parameters(rules, clock["now"], 1))
        return CalendarWork(
            disabled_users=due["unsettled_users"],
            left_over_jobs=due["left_over_jobs"],
            bookings=due["due_bookings"],
            windows=due["due_windows"],
            joined_cards=due["joined_cards"],
            waitlist=due["somebody_waits"],
        )

    async def is_led(self) -> bool:
        """Whether a leading planner exists; it also applies due changes."""
        [row] = await direct.fetch(self._connection, "lease_is_held", {"counted": self._counted()})
        return bool(row["held"])


def due_parameters(rules: BookingRules, now: datetime, limit: int) -> dict[str, Any]:
    """Parameters of the statements that find due changes."""
    return {
        "now": now,
        "look_ahead": now + timedelta(seconds=max(rules.starting_soon_s, default=0)),
        "starting_soon": [float(seconds) for seconds in rules.starting_soon_s],
        "ending_soon": [float(seconds) for seconds in rules.ending_soon_s],
        "limit": limit,
    }

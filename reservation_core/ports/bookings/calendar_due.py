"""Whether the calendar has work: checked often, and mostly without any."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CalendarWork:
    """The parts of the calendar's work that have something to do."""

    disabled_users: bool
    left_over_jobs: bool
    bookings: bool
    windows: bool
    joined_cards: bool
    waitlist: bool

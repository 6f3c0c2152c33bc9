"""Whether there is anything to do in the calendar just now: asked all the time, and mostly answered with no."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CalendarWork:
    """What a look at the calendar would find something of: what each part of it looks for."""

    disabled_users: bool
    left_over_jobs: bool
    bookings: bool
    windows: bool
    joined_cards: bool
    waitlist: bool

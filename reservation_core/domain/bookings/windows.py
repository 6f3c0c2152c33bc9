"""Maintenance windows as messages have them: where they stand, their effects, and the faults in their times."""

from datetime import datetime, timedelta
from enum import StrEnum

LONGEST_WINDOW = timedelta(days=90)


class WindowStatus(StrEnum):
    """Where a window stands: ahead, open, over (by the clock or ended early), or cancelled before it began."""

    CONFIRMED = "confirmed"
    ACTIVE = "active"
    ENDED = "ended"
    CANCELLED = "cancelled"


class Fate(StrEnum):
    """The effect of a window on a job or booking."""

    ENDED = "ended"
    """A job that runs, or a booking in its slot, ends at once."""
    ENDS_EARLIER = "ends_earlier"
    """It ends before the window begins."""
    QUEUED_AGAIN = "queued_again"
    """A starting job is requeued."""
    PLANNED_ANEW = "planned_anew"
    """A waiting job loses its planned slot and is planned again."""
    MOVED = "moved"
    """A booking gets other GPUs at the same time."""
    GOES_ON = "goes_on"
    """A booking ends before the window, and its rest continues as another booking: elsewhere at once, or afterwards."""
    BEGINS_LATER = "begins_later"
    """A booking that would have begun in the window begins at its end."""
    CANCELLED = "cancelled"
    """A booking can't be kept, here or elsewhere, during or after the window."""


def window_faults(start: datetime | None, end: datetime | None, duration: timedelta | None) -> list[str]:
    """The faults in the times that are asked for, each with its field."""
    faults = [
        f"{name}: must be a whole minute"
        for name, at in (("start", start), ("end", end))
        if at is not None and (at.second or at.microsecond)
    ]
    if duration is not None and duration % timedelta(minutes=1):
        faults.append("duration: must be whole minutes")
    if start is not None and end is not None and end <= start:
        faults.append("end: must be after the start")
    if start is not None and end is not None and end - start > LONGEST_WINDOW:
        faults.append(f"end: at most {LONGEST_WINDOW.days} days after the start")
    return faults

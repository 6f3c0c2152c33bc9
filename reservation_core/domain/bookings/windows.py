"""Maintenance windows as messages have them: where they stand, their effects, and the faults in their times."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import assert_never

from reservation_core.domain.time_words import rfc3339

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


def fate_words(fate: Fate, ends_at: datetime | None, resumes_at: datetime | None, goes_on_as: str | None) -> str:
    """A window's effect in words, with times in RFC 3339.

    `goes_on_as` is None where the booking for the rest is not made yet.
    """
    match fate:
        case Fate.ENDED:
            return "ends at once"
        case Fate.ENDS_EARLIER:
            return f"ends earlier{_at(ends_at, ', at')}"
        case Fate.QUEUED_AGAIN:
            return "goes back to the queue"
        case Fate.PLANNED_ANEW:
            return "loses its planned start, and gets another"
        case Fate.MOVED:
            return "moves to other GPUs, at the same time"
        case Fate.GOES_ON:
            booking = goes_on_as or "another booking"
            if ends_at is not None and ends_at == resumes_at:
                return f"moves to other GPUs{_at(ends_at)}, as {booking}"
            return f"ends{_at(ends_at) or ' at once'}, and continues{_at(resumes_at)} as {booking}"
        case Fate.BEGINS_LATER:
            return f"begins later{_at(resumes_at, ', at')}"
        case Fate.CANCELLED:
            return "is cancelled: no other GPUs are free for it"
        case _:
            assert_never(fate)


def _at(when: datetime | None, at: str = " at") -> str:
    return "" if when is None else f"{at} {rfc3339(when)}"


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

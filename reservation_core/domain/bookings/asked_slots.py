"""Slots and their bounds, and faults in the times of a request for one, field by field."""

from datetime import datetime, timedelta
from typing import NamedTuple

from reservation_core.domain.wall_times import WallTimeError, instant_of, read_time, zone_of

LONGEST_BOOKING = timedelta(days=90)
FARTHEST_START = timedelta(days=400)
"""How far ahead a booking may begin, regardless of the policy."""


class Span(NamedTuple):
    """[start, end)."""

    start: datetime
    end: datetime

    @property
    def length(self) -> timedelta:
        return self.end - self.start


def slot_faults(start: str, end: str | None, duration: timedelta | None, time_zone: str | None) -> list[str]:
    """The faults of a slot that has either an end or a duration."""
    faults = time_faults(time_zone, duration, start=start, end=end)
    if faults:
        return faults
    zone = None if time_zone is None else zone_of(time_zone)
    return length_faults(duration or instant_of(read_time(end or ""), zone) - instant_of(read_time(start), zone))


def time_faults(time_zone: str | None, duration: timedelta | None, **times: str | None) -> list[str]:
    """The fields whose value is no time, time zone, or number of whole minutes, each with a message."""
    faults: list[str] = []
    try:
        zone = None if time_zone is None else zone_of(time_zone)
    except WallTimeError as error:
        faults.append(f"time_zone: {error}")
        times = {}
    for name, text in times.items():
        try:
            if text is not None:
                instant_of(read_time(text), zone)
        except WallTimeError as error:
            faults.append(f"{name}: {error}")
    if duration is not None and duration % timedelta(minutes=1):
        faults.append("duration: must be whole minutes")
    return faults


def length_faults(length: timedelta) -> list[str]:
    """A message if a booking can't have this length."""
    if length <= timedelta(0):
        return ["end: must be after the start"]
    return [f"end: at most {LONGEST_BOOKING.days} days after the start"] if length > LONGEST_BOOKING else []

"""The time axis of the picture that shows why a job waits: how far it reaches, and its ticks by the clock on the wall.

Times are ints as in `reservation_core.domain.calendar`.
"""

from datetime import UTC, datetime, time, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from reservation_core.domain.calendar import Range, length_micros, to_micros, to_moment

_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
_MOST_TICKS = 5
_STEPS = (
    *(timedelta(minutes=minutes) for minutes in (5, 10, 15, 30)),
    *(timedelta(hours=hours) for hours in (1, 2, 3, 6, 12)),
    *(timedelta(days=days) for days in (1, 2, 7, 14, 28, 91)),
)
_NEAR_NOW, _NEAR_END = 0.17, 0.93
"""Ticks beside these parts of the axis would overlap `now`, or stick out."""


class Tick(NamedTuple):
    at: int
    words: str


def end_of_axis(now: int, slot: Range | None, length: int) -> int:
    """How far the picture reaches: the wait is at least half of it, and no more of the slot is shown than fits.

    A day without a known start.
    """
    if slot is None:
        return now + length_micros(_DAY)
    wait = max(slot[0] - now, length_micros(_HOUR) // 2)
    reach = wait + min(max(length, length_micros(_HOUR) // 2), wait)
    return now + reach + reach // 20


def ticks(start: int, end: int, zone: ZoneInfo) -> list[Tick]:
    """At most five round times in [start, end], such as `14:00`, or at midnight `Tue 26`."""
    step = next((step for step in _STEPS if (end - start) // length_micros(step) <= _MOST_TICKS), _STEPS[-1])
    first = to_moment(start).astimezone(zone).date()
    found = []
    at = datetime.combine(first, time())
    last = to_moment(end).astimezone(zone).replace(tzinfo=None)
    while at <= last:
        moment = to_micros(at.replace(tzinfo=zone).astimezone(UTC))
        exists = to_moment(moment).astimezone(zone).replace(tzinfo=None) == at
        if exists and _NEAR_NOW <= (moment - start) / (end - start) <= _NEAR_END:
            found.append(Tick(moment, f"{at:%a} {at.day}" if at.time() == time() else f"{at:%H:%M}"))
        at += step
    return found

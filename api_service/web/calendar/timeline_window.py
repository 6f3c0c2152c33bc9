"""The days that a calendar page shows, from midnight to midnight of a time zone, however long they are."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, assert_never
from zoneinfo import ZoneInfo

from reservation_core.domain.calendar import length_micros, to_micros

_DAY, _SECOND = timedelta(days=1), timedelta(seconds=1)
_WALL = len("2030-01-31T09:00:00")
EARLIEST, LATEST = date(2000, 1, 1), date(2199, 12, 1)


class TimelineScale(StrEnum):
    DAY = "day"
    WEEK = "week"
    TWO_WEEKS = "2weeks"
    MONTH = "month"


class Spell(NamedTuple):
    """[start, end) in which clocks are `offset` ahead of UTC; ints as in `reservation_core.domain.calendar`."""

    start: int
    end: int
    offset: int


@dataclass(frozen=True, slots=True)
class DayWindow:
    """The days [first, last) in `zone`. `start` and `end` are their midnights (UTC)."""

    view: TimelineScale
    first: date
    last: date
    zone: ZoneInfo

    @property
    def start(self) -> datetime:
        return _midnight(self.first, self.zone)

    @property
    def end(self) -> datetime:
        return _midnight(self.last, self.zone)

    @property
    def days(self) -> list[date]:
        return [self.first + number * _DAY for number in range((self.last - self.first).days)]

    def bounds(self, hours: int) -> list[datetime]:
        """The starts of steps of so many hours of local time, and the end of the last (UTC, in order)."""
        found = {
            datetime(day.year, day.month, day.day, hour, tzinfo=self.zone).astimezone(UTC)
            for day in self.days
            for hour in range(0, 24, hours)
        }
        return [*sorted(found), self.end]

    @property
    def columns(self) -> list[datetime]:
        """The starts of the table's columns and the end of the last: days, or two hours of one day."""
        return self.bounds(2 if self.view is TimelineScale.DAY else 24)

    @property
    def midnight(self) -> int:
        """The first midnight as if the zone were UTC, as in `reservation_core.domain.calendar`."""
        return to_micros(datetime(self.first.year, self.first.month, self.first.day, tzinfo=UTC))

    @property
    def spells(self) -> tuple[Spell, ...]:
        """The window, cut where clocks are changed."""
        return _spells(self)

    def moved(self, by: int) -> date:
        """The first day of the next window (1) or the one before (-1)."""
        return min(max(self.first + by * (self.last - self.first), EARLIEST), LATEST)

    def wall(self, moment: datetime) -> str:
        """A moment in local time, such as `2030-01-31T09:00:00`."""
        return moment.astimezone(self.zone).isoformat(timespec="seconds")[:_WALL]


def window_of(view: TimelineScale, day: date, zone: ZoneInfo) -> DayWindow:
    """The window that begins at a day, whatever its weekday. A month is 30 days."""
    first = min(max(day, EARLIEST), LATEST)
    match view:
        case TimelineScale.DAY:
            days = 1
        case TimelineScale.WEEK:
            days = 7
        case TimelineScale.TWO_WEEKS:
            days = 14
        case TimelineScale.MONTH:
            days = 30
        case _:
            assert_never(view)
    return DayWindow(view, first, first + days * _DAY, zone)


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    # A day whose clocks go forward at midnight begins an hour later; `fold=0` is that instant.
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)


@lru_cache(maxsize=64)  # each row of a page has the same
def _spells(window: DayWindow) -> tuple[Spell, ...]:
    zone, cuts = window.zone, [window.start]
    for day in window.days:
        begin, end = _midnight(day, zone), _midnight(day + _DAY, zone)
        if _offset(begin, zone) != _offset(end, zone):
            cuts.append(_changed_at(begin, end, zone))
    bounds = sorted({*cuts, window.end})
    return tuple(
        Spell(to_micros(start), to_micros(end), length_micros(_offset(start, zone))) for start, end in pairwise(bounds)
    )


def _offset(moment: datetime, zone: ZoneInfo) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta(0)


def _changed_at(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """The first second of the offset at `after`, which is another than that at `before`."""
    while after - before > _SECOND:
        middle = before + (after - before) // 2
        if _offset(middle, zone) == _offset(after, zone):
            after = middle
        else:
            before = middle
    return after.replace(microsecond=0)

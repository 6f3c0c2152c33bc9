"""The days that a calendar page shows, from midnight to midnight of a time zone, however long they are."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import assert_never
from zoneinfo import ZoneInfo

_DAY = timedelta(days=1)
EARLIEST, LATEST = date(2000, 1, 1), date(2199, 12, 1)


class TimelineScale(StrEnum):
    DAY = "day"
    WEEK = "week"
    TWO_WEEKS = "2weeks"
    MONTH = "month"


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
    def heat_hours(self) -> int:
        """The length of a step of the free counts."""
        match self.view:
            case TimelineScale.DAY:
                return 1
            case TimelineScale.WEEK:
                return 4
            case TimelineScale.TWO_WEEKS:
                return 8
            case TimelineScale.MONTH:
                return 24
            case _:
                assert_never(self.view)

    def moved(self, by: int) -> date:
        """The first day of the next window (1) or the one before (-1)."""
        return min(max(self.first + by * (self.last - self.first), EARLIEST), LATEST)

    def wall(self, moment: datetime) -> str:
        """A moment in local time, such as `2030-01-31T09:00:00`."""
        return moment.astimezone(self.zone).replace(tzinfo=None).isoformat(timespec="seconds")


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

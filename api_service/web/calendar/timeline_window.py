"""Which time a calendar page shows, in somebody's time zone: days from midnight to midnight, however long they are."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import assert_never
from zoneinfo import ZoneInfo

_DAY = timedelta(days=1)
EARLIEST, LATEST = date(2000, 1, 1), date(2199, 12, 1)


class TimelineScale(StrEnum):
    """How much time is shown."""

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
        """When the first day begins."""
        return _midnight(self.first, self.zone)

    @property
    def end(self) -> datetime:
        """When the last day is over."""
        return _midnight(self.last, self.zone)

    @property
    def days(self) -> list[date]:
        """Every day that is shown."""
        return [self.first + number * _DAY for number in range((self.last - self.first).days)]

    def bounds(self, hours: int) -> list[datetime]:
        """Where steps of so many hours begin by the clock on the wall, and at last the end (UTC, in order)."""
        found = {
            datetime(day.year, day.month, day.day, hour, tzinfo=self.zone).astimezone(UTC)
            for day in self.days
            for hour in range(0, 24, hours)
        }
        return [*sorted(found), self.end]

    @property
    def columns(self) -> list[datetime]:
        """Where the columns of the table begin, and at last the end: days, and on one day every two hours."""
        return self.bounds(2 if self.view is TimelineScale.DAY else 24)

    @property
    def heat_hours(self) -> int:
        """For how many hours each free count on the timeline stands."""
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
        """The day from which the next window (1) or the one before (-1) is shown."""
        return min(max(self.first + by * (self.last - self.first), EARLIEST), LATEST)

    def wall(self, moment: datetime) -> str:
        """A moment as the clock on the wall shows it, such as `2030-01-31T09:00:00`."""
        return moment.astimezone(self.zone).replace(tzinfo=None).isoformat(timespec="seconds")


def window_of(view: TimelineScale, day: date, zone: ZoneInfo) -> DayWindow:
    """The window that begins with a day: what is ahead matters, not which weekday it is. A month is 30 days."""
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
    # Where clocks go forward at midnight the day begins an hour later: `fold=0` is that instant.
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)

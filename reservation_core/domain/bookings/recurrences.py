"""Series: the dates of an RRULE (RFC 5545), expanded in the time zone of the request.

09:00 stays 09:00 across clock changes. With a duration, every date has the same length; with an end, every date ends
at the same time of day. Dates whose local time does not exist are reported; of a time that exists twice the first
counts. Work is bounded: rules are at least daily, have COUNT or UNTIL, and end where bookings ahead do.
"""

import re
from calendar import isleap
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, date, datetime, timedelta, tzinfo
from functools import cache
from itertools import islice

from dateutil.rrule import rrulestr

from reservation_core.domain.bookings.asked_slots import FARTHEST_START, Span
from reservation_core.domain.wall_times import NoSuchLocalTimeError, in_zone, instant_of, read_time, zone_of

MAX_OCCURRENCES = 366

_FREQUENCIES = frozenset({"DAILY", "WEEKLY", "MONTHLY", "YEARLY"})
_NUMBERS = re.compile(r"[+-]?\d{1,3}(,[+-]?\d{1,3})*")
_WEEKDAYS = re.compile(r"([+-]?\d{1,2})?(MO|TU|WE|TH|FR|SA|SU)(,([+-]?\d{1,2})?(MO|TU|WE|TH|FR|SA|SU))*")
_PARTS = {
    "FREQ": re.compile(r"[A-Z]+"),
    "INTERVAL": re.compile(r"[1-9]\d{0,2}"),
    "COUNT": re.compile(r"[1-9]\d{0,2}"),
    "UNTIL": re.compile(r"\d{8}(T\d{6}Z?)?"),
    "WKST": re.compile(r"MO|TU|WE|TH|FR|SA|SU"),
    "BYDAY": _WEEKDAYS,
    "BYMONTHDAY": _NUMBERS,
    "BYYEARDAY": _NUMBERS,
    "BYWEEKNO": _NUMBERS,
    "BYMONTH": _NUMBERS,
    "BYSETPOS": _NUMBERS,
}

_NAMED_NUMBERS = {"COUNT": f"a number from 1 to {MAX_OCCURRENCES}", "INTERVAL": "a number from 1 to 999"}


class RecurrenceError(ValueError):
    """A rule that can't be booked; the text says what to write instead."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One date of a series: `number` counts from 0, `local_start` is in the series' zone.

    `span` is None, and `why` says so, where the start or end does not exist.
    """

    number: int
    local_start: datetime
    span: Span | None
    why: str = ""


def asked_dates(
    rule: str, start: str, end: str | None, duration: timedelta | None, time_zone: str | None
) -> list[Occurrence]:
    """The dates of a series that is asked for with an end or a duration, as `slot_faults` finds them right.

    It is expanded in `time_zone`, else with the offset of `start`. Raises RecurrenceError.
    """
    zone = None if time_zone is None else zone_of(time_zone)
    first = read_time(start)
    begin = instant_of(first, zone)
    span = Span(begin, instant_of(read_time(end or ""), zone) if duration is None else begin + duration)
    series_zone = zone or first.tzinfo or UTC
    clocks = [moment.astimezone(series_zone).replace(tzinfo=None, fold=0) for moment in (span.start, span.end)]
    # Given an end, each date lasts until that time of day; given a duration, each lasts as long.
    return occurrences(rule, span, series_zone, None if end is None else clocks[1] - clocks[0])


def occurrences(rule: str, first: Span, zone: tzinfo, wall_length: timedelta | None) -> list[Occurrence]:
    """The dates of a rule whose first slot is `first`.

    `wall_length`: length by the wall clock; None: every slot is as long as the first. Raises RecurrenceError for a rule
    that is malformed, has no end, or reaches beyond FARTHEST_START.
    """
    begin = first.start.astimezone(zone).replace(tzinfo=None, fold=0)
    horizon = begin + FARTHEST_START
    parts = _read(rule)
    count = int(parts.pop("COUNT", 0))
    until = _until(parts.pop("UNTIL"), zone) if "UNTIL" in parts else None
    if not count and until is None:
        raise RecurrenceError("must have COUNT or UNTIL: a series has an end")
    if until is not None and until > horizon:
        raise RecurrenceError(_TOO_FAR)
    dates = _dates(parts, begin, until or horizon, min(count or MAX_OCCURRENCES + 1, MAX_OCCURRENCES + 1))
    if len(dates) > MAX_OCCURRENCES:
        raise RecurrenceError(f"has more than {MAX_OCCURRENCES} dates; book it in parts")
    if not dates:
        raise RecurrenceError("has no date in the time that it covers")
    if until is None and len(dates) < count:
        raise RecurrenceError(_TOO_FAR)
    return [_occurrence(number, at, first, zone, wall_length) for number, at in enumerate(dates)]


def _dates(parts: dict[str, str], begin: datetime, until: datetime, limit: int) -> list[datetime]:
    """The first `limit` dates of a rule from `begin` to `until` (local times). Raises RecurrenceError."""
    # dateutil searches for an impossible date (the 30th of February) until the year 9999, for ten seconds. Years near
    # that end with the same days, leap days and weeks bound the search.
    shift = _same_calendar(begin.year) - begin.year
    text = ";".join(f"{name}={value}" for name, value in parts.items())
    last = until.replace(year=until.year + shift) if until >= begin else begin.replace(year=begin.year + shift - 1)
    try:
        # An UNTIL in the text would load a parser of dates.
        rule = rrulestr(text, dtstart=begin.replace(year=begin.year + shift))
        dates = rule.replace(until=last)  # type: ignore[union-attr]
        return [at.replace(year=at.year - shift) for at in islice(iter(dates), limit)]
    except (ValueError, TypeError, IndexError, OverflowError):
        raise RecurrenceError("must be an RRULE of RFC 5545, such as FREQ=WEEKLY;BYDAY=MO,WE;COUNT=8") from None


@cache
def _same_calendar(year: int) -> int:
    """The last year whose surrounding years have the same calendar as those of `year`."""

    def pattern(of: int) -> list[tuple[bool, int]]:
        return [(isleap(number), date(number, 1, 1).weekday()) for number in range(of - 1, of + 3)]

    wanted = pattern(year)
    return next(number for number in range(MAXYEAR - 2, year - 1, -1) if pattern(number) == wanted)


_TOO_FAR = f"reaches more than {FARTHEST_START.days} days beyond its first date; book it in parts"


def _read(rule: str) -> dict[str, str]:
    """Parse a rule into its parts. Raises RecurrenceError."""
    parts: dict[str, str] = {}
    for part in rule.strip().upper().removeprefix("RRULE:").split(";"):
        name, separator, value = part.partition("=")
        if not separator or name not in _PARTS:
            raise RecurrenceError(
                f"must be made of {', '.join(_PARTS)}, as in FREQ=WEEKLY;BYDAY=MO,WE;COUNT=8: "
                "the time of day and the first date are those of `start`"
            )
        if name in parts or not _PARTS[name].fullmatch(value):
            raise RecurrenceError(f"{name} must stand once, and be {_NAMED_NUMBERS.get(name, 'as RFC 5545 has it')}")
        parts[name] = value
    if parts.get("FREQ") not in _FREQUENCIES:
        raise RecurrenceError(f"FREQ must be one of {', '.join(sorted(_FREQUENCIES))}")
    return parts


def _until(value: str, zone: tzinfo) -> datetime:
    """The last possible local time of a date."""
    try:
        if len(value) == len("20300131"):
            return datetime.strptime(value, "%Y%m%d").replace(hour=23, minute=59, second=59)  # noqa: DTZ007 - local
        until = datetime.strptime(value.removesuffix("Z"), "%Y%m%dT%H%M%S")  # noqa: DTZ007 - local
        if not value.endswith("Z"):
            return until
        return until.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None, fold=0)
    except (ValueError, OverflowError):
        raise RecurrenceError(
            "UNTIL must be a day or a time that exists, such as 20300131 or 20300131T080000Z"
        ) from None


def _occurrence(number: int, local: datetime, first: Span, zone: tzinfo, wall_length: timedelta | None) -> Occurrence:
    if local == first.start.astimezone(zone).replace(tzinfo=None, fold=0):
        # The request's offset says which of two equal local times the first date means.
        return Occurrence(number, local, first)
    try:
        start = in_zone(local, zone)
        end = start + first.length if wall_length is None else in_zone(local + wall_length, zone)
    except NoSuchLocalTimeError as error:
        return Occurrence(number, local, None, str(error))
    if end <= start:
        return Occurrence(number, local, None, "Clocks go back within it: by the clock it ends before it begins.")
    return Occurrence(number, local, Span(start, end))

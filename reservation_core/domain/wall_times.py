"""Times as people write them, with an offset or in a time zone, and the instants that they mean.

A local time that does not exist (clocks go forward) is refused, and the error names the nearest valid times; one that
exists twice (clocks go back) means the first, unless it has an offset. Instants are UTC and of whole minutes.
"""

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

WALL_TIME = r"^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?([Zz]|[+-]\d{2}:\d{2})?$"
"""The accepted form of times: RFC 3339, also without seconds, and without an offset if a time zone is given."""

_ZONE = re.compile(r"[A-Z][A-Za-z0-9_+-]*(/[A-Z][A-Za-z0-9_+-]*)*")
_WALL_TIME = re.compile(WALL_TIME)
_FIRST_YEAR, _LAST_YEAR = 1970, 2200
_SECOND = timedelta(seconds=1)
_MINUTE = timedelta(minutes=1)


class WallTimeError(ValueError):
    """A text is no instant; the message says what to write instead."""


class NoSuchLocalTimeError(WallTimeError):
    """Clocks go forward over this time. `before` and `after` are the nearest instants (UTC) that exist."""

    def __init__(self, wall: datetime, zone: tzinfo, before: datetime, after: datetime) -> None:
        super().__init__(
            f"{wall.isoformat(timespec='minutes')} does not exist in {zone_name(zone)}: clocks go forward over it. "
            f"Write {_shown(before, zone)} or {_shown(after, zone)}."
        )
        self.before = before
        self.after = after


def zone_of(name: str) -> ZoneInfo:
    """A time zone by its IANA name. Raises WallTimeError if it is unknown."""
    # `available_timezones` would read all of their files. Other names, such as `localtime`, depend on the machine.
    if _ZONE.fullmatch(name) and name != "Factory":
        with suppress(ZoneInfoNotFoundError, ValueError, OSError):
            return ZoneInfo(name)
    raise WallTimeError("must be the name of an IANA time zone, such as Europe/Stockholm or UTC")


def zone_name(zone: tzinfo) -> str:
    """A zone's IANA name, or its fixed offset."""
    if isinstance(zone, ZoneInfo) and zone.key is not None:
        return zone.key
    offset = zone.utcoffset(None) or timedelta(0)
    if not offset:
        return "UTC"
    minutes = abs(offset) // _MINUTE
    return f"{'-' if offset < timedelta(0) else '+'}{minutes // 60:02}:{minutes % 60:02}"


def read_time(text: str) -> datetime:
    """Parse a time: aware if it has an offset, else naive. Raises WallTimeError."""
    if not _WALL_TIME.fullmatch(text):
        raise WallTimeError("must be a time such as 2030-01-31T09:00:00Z, or 2030-01-31T09:00 with a time_zone")
    try:
        time = datetime.fromisoformat(text.upper().replace(" ", "T"))
    except ValueError:
        raise WallTimeError("must be a day and a time of day that exist") from None
    if not _FIRST_YEAR <= time.year <= _LAST_YEAR:
        raise WallTimeError(f"must lie between the years {_FIRST_YEAR} and {_LAST_YEAR}")
    return time


def instant_of(written: datetime, zone: tzinfo | None) -> datetime:
    """The instant (UTC) of a time from `read_time`, by its own offset, else by the zone.

    Raises WallTimeError: no offset and no zone, not a whole minute, or NoSuchLocalTimeError.
    """
    if written.tzinfo is not None:
        return whole_minute(written.astimezone(UTC))
    if zone is None:
        raise WallTimeError("must have an offset, such as …T09:00:00+01:00 or …T08:00:00Z, or come with a time_zone")
    return whole_minute(in_zone(written, zone))


def whole_minute(instant: datetime) -> datetime:
    """The same instant. Raises WallTimeError if it is not a whole minute."""
    if instant.second or instant.microsecond:
        raise WallTimeError("must be a whole minute: bookings begin and end on minutes")
    return instant


def in_zone(wall: datetime, zone: tzinfo) -> datetime:
    """The instant (UTC) of a naive local time; the first of two. Raises NoSuchLocalTimeError if there is none."""
    # `fold=0` uses the offset before a change: in a gap it gives an instant after it, `fold=1` one before it.
    instant = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None, fold=0) == wall:
        return instant
    change = _change_between(wall.replace(tzinfo=zone, fold=1).astimezone(UTC), instant, zone)
    raise NoSuchLocalTimeError(wall, zone, change - _MINUTE, change)


def _change_between(early: datetime, late: datetime, zone: tzinfo) -> datetime:
    """The first second at which the zone's offset is that of `late`."""
    low, high = 0, (late - early) // _SECOND
    after = late.astimezone(zone).utcoffset()
    while low < high:
        middle = (low + high) // 2
        if (early + middle * _SECOND).astimezone(zone).utcoffset() == after:
            high = middle
        else:
            low = middle + 1
    return early + low * _SECOND


def _shown(instant: datetime, zone: tzinfo) -> str:
    return instant.astimezone(zone).isoformat(timespec="minutes")

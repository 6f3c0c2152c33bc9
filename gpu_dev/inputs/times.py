"""Times as people type them (`tomorrow 09:00`, `mon 14:30`, `2030-01-31 09:00`, `in 2h`, RFC 3339), and zones.

A time without offset is meant in the zone given, or in this machine's; the server is sent it as it is, with the zone's
name, so that a time that a clock change leaves out or has twice is the server's to judge.
"""

import os
import re
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from gpu_dev.errors import UsageError
from gpu_dev.inputs.durations import parse_duration

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})", re.ASCII)
_DATE = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[tT ](\d{1,2}):(\d{2})(?::00)?)?", re.ASCII)
_WITH_OFFSET = re.compile(r".*(?:[zZ]|[+-]\d{2}:?\d{2})")
_LOCALTIME = Path("/etc/localtime")
FORMS = 'Write it as "2030-01-31 09:00", "tomorrow 09:00", "mon 14:30", 09:00, now, "in 2h" or RFC 3339.'


def local_now() -> datetime:
    """This machine's clock, with an offset; whole minutes."""
    return datetime.now(UTC).replace(second=0, microsecond=0).astimezone()  # noqa: TID251 - the client has no clock port


def zone_name(given: str | None) -> str | None:
    """The zone that times without offset are meant in: the one given, or this machine's where it has a name.

    Raises UsageError for a name that is no zone.
    """
    if given is not None:
        _zone(given)
        return given
    wanted = os.environ.get("TZ", "").removeprefix(":")
    if not wanted and _LOCALTIME.is_symlink():
        _, _, wanted = os.path.realpath(_LOCALTIME).partition("zoneinfo/")
    try:
        ZoneInfo(wanted)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
    return wanted


def parse_time(text: str, now: datetime, zone: str | None) -> str:
    """A time as the wire has it: with an offset, or local (`2030-01-31T09:00`) to be sent with the zone's name.

    `now` (aware) is what relative times count from; a clock time alone is its next occurrence. Without `zone` a local
    time gets this machine's offset. Raises UsageError.
    """
    wanted = " ".join(text.split())
    if len(wanted) > 10 and _WITH_OFFSET.fullmatch(wanted):
        return wanted.replace(" ", "T", 1)
    here = now.astimezone(_zone(zone))
    lowered = wanted.lower()
    if lowered == "now":
        return here.isoformat(timespec="minutes")
    if lowered.startswith("in "):
        return (here + parse_duration(lowered[3:])).isoformat(timespec="minutes")
    local = _local(lowered, here.replace(tzinfo=None))
    if local is None:
        raise UsageError(f"{text!r} is not a time. {FORMS}")
    if zone is None:
        return local.astimezone().isoformat(timespec="minutes")
    return local.isoformat(timespec="minutes")


def parse_instant(text: str, now: datetime, zone: str | None) -> datetime:
    """The same as an aware time. Raises UsageError."""
    try:
        read = datetime.fromisoformat(parse_time(text, now, zone))
    except ValueError as error:
        raise UsageError(f"{text!r} is not a time. {FORMS}") from error
    return read if read.tzinfo is not None else read.replace(tzinfo=_zone(zone))


def _local(text: str, here: datetime) -> datetime | None:
    date = _DATE.fullmatch(text)
    try:
        if date is not None:
            day = datetime.fromisoformat(date[1])
            return day.replace(hour=int(date[2] or 0), minute=int(date[3] or 0))
        day_text, _, clock_text = text.rpartition(" ")
        clock = _CLOCK.fullmatch(clock_text)
        if clock is None:
            day_text, clock_text = text, "00:00"
            clock = _CLOCK.fullmatch(clock_text)
            if not day_text or clock is None:
                return None
        moment = here.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0)
    except ValueError:
        return None
    if not day_text:
        return moment if moment >= here else moment + timedelta(days=1)
    if day_text in ("today", "tomorrow"):
        return moment + timedelta(days=day_text == "tomorrow")
    days = [number for number, name in enumerate(_DAYS) if len(day_text) >= 3 and name.startswith(day_text)]
    if len(days) != 1:
        return None
    ahead = (days[0] - here.weekday()) % 7
    moment += timedelta(days=ahead)
    return moment if moment >= here else moment + timedelta(days=7)


def _zone(name: str | None) -> tzinfo | None:
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(f"{name!r} is no time zone. Name one such as Europe/Stockholm or UTC.") from error

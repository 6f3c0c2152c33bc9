"""Times as people type them (`tomorrow 9am`, `mon 14:30`, `31 jan 9am`, `in 2h`, RFC 3339), and zones.

A time without offset is meant in the zone given, or in this machine's; the server is sent it as it is, with the zone's
name, so that a time that a clock change leaves out or has twice is the server's to judge.
"""

import os
import re
from datetime import UTC, datetime, time, timedelta, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from gpu_dev.errors import UsageError
from gpu_dev.inputs.durations import parse_duration
from gpu_dev.inputs.meant_times import past_refusal, period_meant, refusal
from gpu_dev.inputs.slot_questions import which_end, which_slot
from gpu_dev.inputs.time_words import DATE, DAYS, NEAR_DAYS, dated, usual
from reservation_core.domain.short_durations import seconds_in
from reservation_core.domain.wall_times import NoSuchLocalTimeError, in_zone

_FIXED = (*NEAR_DAYS, "now", "in")
"""First words of times that are the same seen from anywhere."""
_CLOCK = re.compile(r"(\d{1,2})(?::(\d{2})(?::(\d{2}))?)? ?(am|pm)?", re.ASCII)
_SLOT = re.compile(r"(?:(?P<day>.*\S) )?(?P<start>\d[\d:]* ?(?:am|pm)?) ?[-–] ?(?P<end>\d[\d:]* ?(?:am|pm)?)", re.ASCII)
_DATED_SLOT = re.compile(r"\d{4}-\d{2}-\d{2} \d{1,2}(?::\d{2})?-\d{2}:\d{2}", re.ASCII)
_WITH_OFFSET = re.compile(r"\d{4}-\d{2}-\d{2}.*(?:[zZ]|[+-](?:0\d|1[0-4]):?\d{2})")
_ZONE_NAME = re.compile(r"(.*\d[\d:]*(?: ?[ap]m)?) ([a-z]{3,5}|[+-]\d{2})", re.IGNORECASE | re.ASCII)
_FROM_MIDNIGHT = re.compile(r".*\S\s+midnight\s*(?:[-–]|(?:to|until|till)\s).*", re.IGNORECASE)
"""A slot that begins at the midnight of a day."""
_DASH = re.compile("[-–]")
_IN_12_HOURS = re.compile(r"\d ?[ap]m\b", re.IGNORECASE | re.ASCII)
_LOCALTIME = Path("/etc/localtime")
FORMS = 'Write it as "2030-01-31 09:00", "31 jan 9am", "tomorrow 9am", "mon 14:30", 09:00, now or "in 2h".'
_SLOT_FORMS = 'Write it as "mon 9-17", "tomorrow 9am-5pm" or "31 jan 9-17".'


def _minute(now: datetime) -> datetime:
    return now.replace(second=0, microsecond=0)


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


def parse_time(text: str, now: datetime, zone: str | None, *, whole_days: bool = False) -> str:
    """A time as the wire has it: with an offset, or local (`2030-01-31T09:00`) to be sent with the zone's name.

    `now` (aware) is what relative times count from; a clock time alone is its next occurrence. Without `zone` a local
    time gets this machine's offset. With `whole_days` a day alone is its beginning. Raises UsageError.
    """
    here = _minute(now).astimezone(_zone(zone))
    wanted = usual(dated(text, here.date()))
    if len(wanted) > 10 and _WITH_OFFSET.fullmatch(wanted):
        return _with_offset(wanted)
    if "midnight" in text.lower() and not _is_clock(text):
        raise _which_midnight(text)
    if (named := _named_zone(wanted, here)) is not None:
        return _in_zone(parse_time(named[0], now, "UTC" if named[1] == "UTC" else zone), named[1], zone)
    lowered = wanted.lower()
    if lowered == "now":
        return here.isoformat(timespec="minutes")
    if lowered.startswith("in "):
        later = parse_duration(lowered[3:])
        counted_from = now if later % timedelta(minutes=1) else _minute(now)
        return _written((counted_from.astimezone(UTC) + later).astimezone(_zone(zone)))
    local = _local(lowered, here.replace(tzinfo=None))
    if local is None and (day := _day(lowered, here.replace(tzinfo=None))) is not None:
        if not whole_days:
            if day.date() < here.date():
                raise UsageError(f"{text!r} is in the past. {FORMS}")
            on = "" if lowered in NEAR_DAYS or lowered.startswith("next ") else "on "
            raise UsageError(f'At what time {on}{wanted}? Write it as "{wanted} 9am" or "{wanted} 14:30".')
        local = day
    if local is None:
        fault = _fault_of(text, lowered)
        raise refusal(text, fault, FORMS, lambda meant: parse_instant(meant, now, zone, whole_days=whole_days))
    return _sent(local, zone)


def _with_offset(text: str) -> str:
    """A date, a clock time and an offset as in RFC 3339, which wants an hour of two digits and no spaces."""
    written = re.sub(r"[ t](?=\d)", "T", text).replace(" ", "")
    written = re.sub(r"T(?=\d:)", "T0", written)
    try:
        datetime.fromisoformat(written)
    except ValueError as error:
        raise UsageError(f"{_fault_of(text, text)} {FORMS}") from error
    return written


def _which_midnight(text: str) -> UsageError:
    return UsageError(f"Is the midnight of {text!r} the beginning of that day or its end? Write the day and 00:00.")


def _named_zone(wanted: str, here: datetime) -> tuple[str, str] | None:
    """A time and its zone where the zone's short name follows it, as in tables: UTC, or the one that is meant here."""
    found = _ZONE_NAME.fullmatch(wanted)
    if found is None:
        return None
    name = found[2].upper()
    return (found[1], name) if name == "UTC" or name in _short_names(here) else None


def _short_names(here: datetime) -> set[str | None]:
    """The short names of a zone over a year."""
    return {(here + timedelta(days=days)).astimezone(here.tzinfo).tzname() for days in range(0, 360, 60)}


def _fault_of(text: str, lowered: str, what: str = "time") -> str:
    """Why it is not a time, or not a slot."""
    if (date := DATE.match(lowered)) is not None:
        try:
            datetime.fromisoformat(date[0])
        except ValueError:
            return f"There is no day {date[0]} in the calendar."
    return f"{text!r} is not a {what}."


def parse_slot(text: str, now: datetime, zone: str | None) -> tuple[str, str] | None:
    """Start and end of `mon 9-17` or `30 nov 9am-5pm`; None for what is no such slot. Raises UsageError.

    An end that is not after the start is on the next day where both have am or pm (`9pm-5am`), or the start is of 24
    hours and the end is am, midnight or of 24 hours as well (`22-6`). A date, a space and `09:00-12:00` is a slot, no
    time with an offset.
    """
    if _FROM_MIDNIGHT.fullmatch(text):
        raise _which_midnight(text)
    there = now.astimezone(_zone(zone))
    wanted = usual(dated(text, there.date()))
    if (named := _named_zone(wanted, there)) is not None and _DASH.search(named[0]):
        within = parse_slot(named[0], now, "UTC" if named[1] == "UTC" else zone)
        return None if within is None else (_in_zone(within[0], named[1], zone), _in_zone(within[1], named[1], zone))
    slot = _SLOT.fullmatch(wanted.lower())
    if slot is None or (_WITH_OFFSET.fullmatch(wanted) and not _DATED_SLOT.fullmatch(wanted)):
        return None
    here = _minute(there).replace(tzinfo=None)
    first, until = slot["start"].strip(), _clock(slot["end"])
    if first.isdigit() and slot["end"].endswith("pm") and until is not None and int(first) + 12 < until.hour:
        first += "pm"  # 1-5pm
    start = _local(" ".join(filter(None, (slot["day"], first))), here, hours_alone=True)
    if until is None or start is None:
        fault = _fault_of(text, wanted.lower(), "slot")
        raise refusal(text, fault, _SLOT_FORMS, lambda meant: parse_slot(meant, now, zone))
    end = datetime.combine(start, until)
    if end <= start:
        of_12_hours = first.endswith("m"), slot["end"].endswith("m")
        after_noon = of_12_hours[0] or start.hour >= 13 or (start.hour == 12 and until == time(0))
        if not after_noon or not (until == time(0) or of_12_hours[1] or not of_12_hours[0]):
            raise UsageError(f'"{first}-{slot["end"]}": {which_slot(start, end, *of_12_hours)}')
        end += timedelta(days=1)
    return _sent(start, zone), _sent(end, zone)


def parse_instant(text: str, now: datetime, zone: str | None, *, whole_days: bool = True) -> datetime:
    """The same as an aware time. Raises UsageError."""
    try:
        return aware(parse_time(text, now, zone, whole_days=whole_days), zone)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{text!r} is not a time. {FORMS}") from error


def aware(written: str, zone: str | None) -> datetime:
    """A time as the wire has it, aware; one without offset is in `zone`.

    Raises ValueError for what is no time, and UsageError for a time that a clock change leaves out.
    """
    read, there = datetime.fromisoformat(written), _zone(zone)
    if read.tzinfo is not None or there is None:
        return read
    try:
        return in_zone(read, there).astimezone(there)
    except NoSuchLocalTimeError as error:
        raise UsageError(str(error)) from error


def parse_past(text: str, now: datetime, zone: str | None) -> datetime:
    """The same of a time to look back at: `mon` is the last Monday, and `yesterday` a day. Raises UsageError.

    A length, such as `3d` or `90m ago`, is that long before now.
    """
    numbers = dated(text, now.astimezone(_zone(zone)).date(), past=True)
    try:
        ago = _ago(numbers, now)
        return _parse_past(numbers, now, zone) if ago is None else ago
    except UsageError as error:
        raise past_refusal(text, str(error).replace(repr(numbers), repr(text)), FORMS) from error


def _ago(text: str, now: datetime) -> datetime | None:
    """The time before `now` of `3d` or `90m ago`; None for what is no length. Raises UsageError."""
    seconds = seconds_in(text.lower().strip().removesuffix("ago").removeprefix("-"))
    try:
        return None if seconds is None else now - timedelta(seconds=seconds)
    except OverflowError as error:
        raise UsageError(f"{text!r} is too long ago. {FORMS}") from error


def _parse_past(text: str, now: datetime, zone: str | None) -> datetime:
    day = (usual(text).lower().split() or [""])[0]
    if len(day) >= 3 and any(name.startswith(day) for name in DAYS):
        last = parse_instant(text, now - timedelta(days=6), zone)
        return last if last <= now else parse_instant(text, now - timedelta(days=7), zone)
    return parse_instant(f"today {usual(text)}" if _is_clock(text) else text, now, zone)


def _is_clock(text: str) -> bool:
    """Whether it is a clock time alone, such as `9:30`, `noon` or `9:30 UTC`."""
    clock = _CLOCK.fullmatch(_ZONE_NAME.sub(r"\1", usual(text)).lower())
    return clock is not None and any(clock.group(2, 4))


def parse_end(text: str, begin: datetime, now: datetime, zone: str | None, *, start: str = "") -> str:
    """The end of a slot as the wire has it: `18:00` and `fri 9am` are the first after the start. Raises UsageError.

    An end that names its day alone (`today 18:00`, a date) is not moved. `start` is how `begin` was typed.
    """
    if _is_clock(text):
        counted_from = max(begin, now)
        _require_clear_end(text, begin, parse_instant(text, counted_from, zone), zone, start)
        return parse_time(text, counted_from, zone)
    end = parse_instant(text, now, zone, whole_days=False)
    is_fixed = usual(text).lower().split()[0] in _FIXED
    if is_fixed or end > begin:
        return parse_time(text, now, zone)
    later = parse_instant(text, begin, zone, whole_days=False)
    here, there = (moment.astimezone(_zone(zone)) for moment in (begin, later))
    if there.date() > here.date() and there.weekday() == here.weekday():
        raise UsageError(f'{text!r} is before the start. Write --end "{there:%Y-%m-%d %H:%M}" for the week after.')
    return parse_time(text, begin, zone)


def _require_clear_end(text: str, begin: datetime, end: datetime, zone: str | None, start: str) -> None:
    """Raise UsageError for an end of the next day that may be meant for the evening of the day of the start.

    It is clear where both are typed with am or pm, and after a start in the afternoon.
    """
    of_12_hours = [_IN_12_HOURS.search(usual(typed)) is not None for typed in (start, text)]
    here, there = (moment.astimezone(_zone(zone)).replace(tzinfo=None) for moment in (begin, end))
    if there.date() > here.date() and here.hour < 13 and there.time() != time(0) and not all(of_12_hours):
        raise UsageError(which_end(here, there, is_clear=of_12_hours[1]))


def parse_new_end(text: str, begin: datetime, end: datetime, now: datetime, zone: str | None) -> str:
    """The new end of what lasts from `begin` to `end`, as the wire has it. Raises UsageError.

    A clock time is the first after `begin`; of what is longer than a day, on its last day, whose end is midnight.
    """
    if not _is_clock(text):
        return parse_end(text, begin, now, zone)
    if end - begin > timedelta(days=1):
        begin = (end.astimezone(_zone(zone)) - timedelta(minutes=1)).replace(hour=0, minute=1, second=0)
    else:
        _require_clear_end(text, begin, parse_instant(text, begin, zone), zone, "")
    return parse_time(text, begin, zone)


def parse_period(
    start: str | None, end: str | None, now: datetime, zone: str | None, *, past: bool = False
) -> tuple[datetime | None, datetime | None]:
    """Begin and end of a time; an end that would come before the begin is read as seen from there (`mon` to `fri`).

    A clock time that ends a `past` is the last one before now if that is after the begin. Raises UsageError for an end
    that is not after the begin, and for a `past` that has not come.
    """
    read = parse_past if past else parse_instant
    try:
        begin = None if start is None else read(start, now, zone)
    except UsageError as error:
        meant = None if end else period_meant(start or "", lambda on, to: parse_period(on, to, now, zone, past=past))
        if meant is None:
            raise
        raise UsageError(f"{start!r} is a begin and an end. Write {meant}.") from error
    until = None if end is None else read(end, now, zone)
    if past and begin is not None and begin > now:
        raise UsageError(f"{start!r} is in the future. Give a time in the past.")
    if past and begin is not None and end is not None and until is not None and until > now and _is_clock(end):
        day_before = parse_instant(f"yesterday {usual(end)}", now, zone)
        until = day_before if day_before > begin else until
    if begin is not None and end is not None and until is not None and until <= begin:
        word = usual(end).lower().split()[0]
        if word not in _FIXED and not (past and _ago(end, now)):
            until = parse_instant(end, begin, zone)
        if until <= begin and len(word) >= 3 and any(name.startswith(word) for name in DAYS):
            until = parse_instant(end, begin + timedelta(days=1), zone)  # `today` to `fri`, on a Friday
        if until <= begin or (past and until > now):
            raise UsageError(
                f"The end, {end!r}, is not after the begin, {start!r}.{'' if past else ' Give a later end.'}"
            )
    return begin, until


def _in_zone(written: str, name: str, zone: str | None) -> str:
    """A time in UTC, or in `zone` while that has this short name: of a time that it has twice, the one with the name.

    Raises UsageError where the zone has another name at that time.
    """
    moment = datetime.fromisoformat(written)
    if name == "UTC":
        return written if moment.tzinfo is not None else f"{written}Z"
    for fold in (0, 1):
        local = moment.replace(tzinfo=None, fold=fold)
        there = local.astimezone() if zone is None else local.replace(tzinfo=_zone(zone))
        if there.tzname() == name:
            return _written(there)
    raise UsageError(f"It is not {name} here at that time. Leave {name} out, or give the time in UTC.")


def _sent(local: datetime, zone: str | None) -> str:
    return _written(local.astimezone() if zone is None else local)


def _written(moment: datetime) -> str:
    """A time as the wire has it; with seconds where it has some."""
    return moment.isoformat(timespec="seconds" if moment.second else "minutes")


def _local(text: str, here: datetime, *, hours_alone: bool = False) -> datetime | None:
    """A day and a clock time, or a clock time alone; an hour alone (`9`) only after a day, or with `hours_alone`."""
    words = re.split("[ t](?=[0-9])", text) if DATE.match(text) else text.rsplit(" ", 1)
    if words[-1] in ("am", "pm"):
        words = text.rsplit(" ", 2)
        words[-2:] = [" ".join(words[-2:])]
    clock = _clock(words[-1])
    if clock is None or len(words) > 2:
        return None
    if len(words) == 2:
        day = _day(words[0], here)
        if day is None:
            return None
        moment = datetime.combine(day, clock)
        weekday = not DATE.fullmatch(words[0]) and words[0] not in NEAR_DAYS
        return moment + timedelta(days=7) if weekday and moment < here else moment
    if words[0].isdigit() and not hours_alone:
        return None
    moment = datetime.combine(here, clock)
    return moment if moment >= here else moment + timedelta(days=1)


def _clock(text: str) -> time | None:
    """The time of day of `9`, `9:30`, `9:30:12`, `9am` or `9:30 pm`."""
    clock = _CLOCK.fullmatch(text)
    if clock is None:
        return None
    hour, minute, second = int(clock[1]), int(clock[2] or 0), int(clock[3] or 0)
    if clock[4] is not None:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + 12 * (clock[4] == "pm")
    return time(hour, minute, second) if hour < 24 and minute < 60 and second < 60 else None


def _day(text: str, here: datetime) -> datetime | None:
    """The beginning of a day: a date, `today`, `tomorrow`, or the next such weekday (today, if it is one)."""
    today = here.replace(hour=0, minute=0, second=0, microsecond=0)
    if DATE.fullmatch(text):
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            return None
    if text in NEAR_DAYS:
        return today + timedelta(days=NEAR_DAYS.index(text) - 1)
    name = text.removeprefix("next ")
    days = [number for number, day in enumerate(DAYS) if len(name) >= 3 and day.startswith(name)]
    if len(days) != 1:
        return None
    coming = today + timedelta(days=(days[0] - here.weekday()) % 7)
    if name == text:
        return coming
    if days[0] > here.weekday():  # for some the one of this week, for others that of the next one
        later = coming + timedelta(days=7)
        raise UsageError(f"Which {DAYS[days[0]].title()}, {coming:%Y-%m-%d} or {later:%Y-%m-%d}? Write the date.")
    return coming if coming > today else coming + timedelta(days=7)


def _zone(name: str | None) -> tzinfo | None:
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(f"{name!r} is no time zone. Name one such as Europe/Stockholm or UTC.") from error

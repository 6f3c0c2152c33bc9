"""The slot of a booking or a maintenance window from --start, --end and --for, and the rule of a series."""

from datetime import datetime
from typing import Any

from gpu_dev.errors import UsageError
from gpu_dev.inputs.durations import parse_duration
from gpu_dev.inputs.machine_zone import local_now
from gpu_dev.inputs.times import aware, parse_end, parse_instant, parse_slot, parse_time, zone_name

_FOR_HOW_LONG = "Say for how long: --for 4h, or --end with a time."
_REPEATS = {"daily": "FREQ=DAILY", "weekdays": "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR", "weekly": "FREQ=WEEKLY"}


def slot_fields(start: str, end: str | None, duration: str | None, zone: str | None) -> dict[str, Any]:
    """The request's fields for a slot. Raises UsageError where its end is missing or given twice."""
    name, now = zone_name(zone), local_now()
    slot = parse_slot(start, now, name)
    if slot is not None:
        if end is not None or duration is not None:
            raise UsageError(f"--start {start!r} already says the end. Leave out --for and --end.")
        return {"start": slot[0], "end": slot[1], "time_zone": name}
    if end is not None and duration is not None:
        raise UsageError("Say for how long once: by --for, or by --end.")
    if end is None and duration is None:
        _require_time(start, now, name, _FOR_HOW_LONG)
        raise UsageError(_FOR_HOW_LONG)
    fields: dict[str, Any] = {"start": parse_time(start, now, name), "time_zone": name}
    if duration is not None:
        return fields | {"duration": parse_duration(duration)}
    begin = parse_instant(start, now, name, whole_days=False)
    return fields | {"end": parse_end(end or "", begin, now, name, start=start)}


def start_and_length(start: str, duration: str | None, zone: str | None) -> dict[str, Any]:
    """The same with a length in place of an end. Raises UsageError where it is missing or given twice."""
    if duration is not None:
        return slot_fields(start, None, duration, zone)
    name = zone_name(zone)
    slot = parse_slot(start, local_now(), name)
    if slot is None:
        for_how_long = 'Say for how long: --for 4h, or --start with an end, as in "mon 9-17".'
        _require_time(start, local_now(), name, for_how_long)
        raise UsageError(for_how_long)
    begin, end = (aware(time, name) for time in slot)
    return {"start": slot[0], "duration": end - begin, "time_zone": name}


def _require_time(start: str, now: datetime, zone: str | None, then: str) -> None:
    """Raise UsageError for a start that lacks, besides its length, a time of day or a form that can be read."""
    try:
        parse_time(start, now, zone)
    except UsageError as error:
        raise UsageError(f"{error} {then}") from error


def window_fields(start: str | None, end: str | None, duration: str | None, zone: str | None) -> dict[str, Any]:
    """The same for a maintenance window: times with offsets, and without --start from now on. Raises UsageError."""
    fields = slot_fields("now" if start is None else start, end, duration, zone)
    name = fields.pop("time_zone")
    if start is None:
        del fields["start"]
    return {key: aware(value, name) if isinstance(value, str) else value for key, value in fields.items()}


def recurrence_rule(text: str) -> str:
    """The rule of a series: `weekly 8` is FREQ=WEEKLY;COUNT=8. Raises UsageError where a word has no number."""
    word, _, count = " ".join(text.lower().split()).partition(" ")
    if word not in _REPEATS and "=" not in text:
        raise UsageError(
            f'{text!r} is no rule of a series. Write "daily 5", "weekdays 10", "weekly 8", or a rule of RFC 5545 such'
            " as FREQ=MONTHLY;COUNT=3."
        )
    if word not in _REPEATS:
        return text
    if not (count.isascii() and count.isdigit() and int(count)):
        raise UsageError(
            f'How many dates has the series? Write --rrule "{word} 8" for 8, or "{_REPEATS[word]};UNTIL=20301231".'
        )
    return f"{_REPEATS[word]};COUNT={count}"

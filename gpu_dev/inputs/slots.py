"""The slot of a booking from the options --start, --end and --for."""

from typing import Any

from gpu_dev.errors import UsageError
from gpu_dev.inputs.durations import parse_duration
from gpu_dev.inputs.times import local_now, parse_end, parse_instant, parse_slot, parse_time, zone_name


def slot_fields(start: str, end: str | None, duration: str | None, zone: str | None) -> dict[str, Any]:
    """The request's fields for a slot. Raises UsageError where its end is missing or given twice."""
    name, now = zone_name(zone), local_now()
    slot = parse_slot(start, now, name)
    if slot is not None:
        if end is not None or duration is not None:
            raise UsageError(f"--start {start!r} already says the end. Leave out --for and --end.")
        return {"start": slot[0], "end": slot[1], "time_zone": name}
    if (end is None) == (duration is None):
        raise UsageError("Say for how long: --for 4h, or --end with a time.")
    fields: dict[str, Any] = {"start": parse_time(start, now, name), "time_zone": name}
    if duration is not None:
        return fields | {"duration": parse_duration(duration)}
    begin = parse_instant(start, now, name, whole_days=False)
    return fields | {"end": parse_end(end or "", begin, now, name)}

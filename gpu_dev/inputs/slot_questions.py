"""What to ask where a typed slot can be two."""

from datetime import datetime, timedelta


def which_slot(start: datetime, end: datetime, start_is_clear: bool, end_is_clear: bool) -> str:
    """The question which slot is meant, with each as it can be written; `end` is not after `start`."""
    half, begin, until = timedelta(hours=12), _with_half(start), _with_half(end)
    if not end_is_clear and end.hour < 12 and end + half > start:
        later = _with_half(end + half)
        return f"{later}, or {end:%-H:%M} the next day? Write {begin}-{later} or {begin}-{until}."
    if not start_is_clear and start.hour < 12:
        evening = _with_half(start + half)
        return f"from {evening}, or from {begin}? Write {evening}-{until} or {begin}-{until}."
    return f"{end:%-H:%M} the next day? Write {begin}-{until}."


def which_end(start: datetime, end: datetime, *, is_clear: bool) -> str:
    """The question which end is meant, with each as it can be written; `end` is on the day after `start`."""
    evening, next_day = end - timedelta(hours=12), f"{end:%-H:%M} the next day"
    write = f'--end "{end:%Y-%m-%d %H:%M}"'
    if is_clear or end.hour >= 12 or evening <= start:
        return f"Does it end at {next_day}? Write {write}."
    return f"Does it end at {_with_half(evening)} or at {next_day}? Write --end {_with_half(evening)} or {write}."


def _with_half(moment: datetime) -> str:
    """A clock time as `9am` or `2:30pm`."""
    return f"{moment:%-I:%M%p}".replace(":00", "").lower()

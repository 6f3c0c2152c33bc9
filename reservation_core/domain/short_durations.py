"""Durations in short form, as users type and tables show them: `4h`, `90m`, `1h30m`, `2d`, `45s`."""

import re
from datetime import timedelta

_SHORT = re.compile(r"(?:(\d{1,9})w)?(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?", re.ASCII)
_UNITS_S = (604_800, 86_400, 3_600, 60, 1)
_SHOWN = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def seconds_in(text: str) -> int | None:
    """The seconds of a short duration (ignoring case and surrounding spaces); None if it is malformed."""
    wanted = text.strip().lower()
    short = _SHORT.fullmatch(wanted)
    if short is None or not wanted:
        return None
    return sum(int(count or 0) * unit for count, unit in zip(short.groups(), _UNITS_S, strict=True))


def written(duration: timedelta) -> str:
    """The short form, to the second: `2d`, `1h30m`, `45s`; `seconds_in` reads it back."""
    left = int(duration.total_seconds())
    parts = []
    for unit, letter in _SHOWN:
        count, left = divmod(left, unit)
        if count:
            parts.append(f"{count}{letter}")
    return "".join(parts) or "0s"

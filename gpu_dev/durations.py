"""Durations as people type them (`4h`, `90m`, `1h30m`, `2d`, `45s`, `PT4H`) and as tables show them."""

import re
from datetime import timedelta

from pydantic import TypeAdapter, ValidationError

from gpu_dev.errors import UsageError
from reservation_core.contracts import Duration

_SHORT = re.compile(r"(?:(\d{1,9})w)?(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?", re.ASCII)
_UNITS_S = (604_800, 86_400, 3_600, 60, 1)
_WIRE: TypeAdapter[timedelta] = TypeAdapter(Duration)
FORMS = "Write it as 45s, 90m, 4h, 1h30m, 2d or PT4H (at least 1s, at most 90d)."


def parse_duration(text: str) -> timedelta:
    """Read a duration, in whole seconds. Raises UsageError for anything else, and beyond the wire's bounds."""
    wanted = text.strip()
    short = _SHORT.fullmatch(wanted.lower())
    try:
        if short is not None and wanted:
            seconds = sum(int(count or 0) * unit for count, unit in zip(short.groups(), _UNITS_S, strict=True))
            return _WIRE.validate_python(seconds)
        if wanted[:1] in ("P", "p"):
            return _WIRE.validate_python(wanted.upper())
    except (ValidationError, OverflowError) as error:
        raise UsageError(f"{text!r} is no duration that a job can have. {FORMS}") from error
    raise UsageError(f"{text!r} is not a duration. {FORMS}")


def format_duration(duration: timedelta) -> str:
    """Show a duration the short way: `2d`, `1h30m`, `45s`; what `parse_duration` reads back."""
    left = int(duration.total_seconds())
    parts = []
    for unit, letter in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")):
        count, left = divmod(left, unit)
        if count:
            parts.append(f"{count}{letter}")
    return "".join(parts) or "0s"

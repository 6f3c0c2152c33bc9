"""Durations as people type them (`4h`, `90m`, `1h30m`, `2d`, `45s`, `PT4H`) and as tables show them."""

from datetime import timedelta

from gpu_dev.errors import UsageError
from reservation_core.domain.short_durations import (
    LONGEST_DURATION,
    meant_durations,
    plain_iso8601,
    seconds_in,
    written,
)

FORMS = 'Write it as 45s, 90m, 4h, 1h30m, 2d or "4 hours" (at least 1s, at most 90d).'

_SHORTEST = timedelta(seconds=1)
_LONGEST_S = LONGEST_DURATION.total_seconds()


def parse_duration(text: str) -> timedelta:
    """Read a duration, in whole seconds. Raises UsageError for anything else, and beyond the wire's bounds."""
    wanted = text.strip()
    seconds = seconds_in(wanted)
    if seconds is not None:
        if 1 <= seconds <= _LONGEST_S:
            return timedelta(seconds=seconds)
        raise UsageError(f"{text!r} is too {'long' if seconds else 'short'}. {FORMS}")
    if wanted[:1] in ("P", "p"):
        if (read := _read_iso8601(wanted.upper())) is not None:
            return read
    elif wanted.isascii() and wanted.isdigit() and int(wanted):
        raise UsageError(f"{wanted} of what? Write {wanted}h for hours, {wanted}m for minutes or {wanted}d for days.")
    else:
        meant = [form for form in meant_durations(wanted) if 1 <= (seconds_in(form) or 0) <= _LONGEST_S]
        question = f"Did you mean {' or '.join(meant)}?" if meant else FORMS
        raise UsageError(f"{text!r} is not a duration. {question}")
    raise UsageError(f"{text!r} is too short or too long. {FORMS}")


def _read_iso8601(text: str) -> timedelta | None:
    """A duration in the form of REST messages; None for what no job can have."""
    if (plain := plain_iso8601(text)) is not None:
        return plain if _SHORTEST <= plain <= LONGEST_DURATION else None
    from pydantic import TypeAdapter, ValidationError

    from reservation_core.contracts.base import Duration

    wire: TypeAdapter[timedelta] = TypeAdapter(Duration)
    try:
        return wire.validate_python(text)
    except (ValidationError, OverflowError):
        return None


def format_duration(duration: timedelta) -> str:
    """Show a duration the short way: `2d`, `1h30m`, `45s`. `parse_duration` reads it back."""
    return written(duration)

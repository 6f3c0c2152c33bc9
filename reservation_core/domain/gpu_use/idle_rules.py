"""The rule about jobs whose GPUs are idle, as people write it, and the warning that a job was given."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from reservation_core.domain.short_durations import seconds_in, written

LEAST = timedelta(minutes=1)
LONGEST = timedelta(days=1)
"""The bounds of a window and of a grace time."""
_HUNDRED = 100
_LENGTHS = 2


class IdleThen(StrEnum):
    """What follows when the grace time of a warning is over: nothing, the job's end, or its way back to the queue."""

    WARN = "warn"
    REQUEUE = "requeue"
    RELEASE = "release"

    @property
    def gives_back(self) -> bool:
        """Whether the GPUs go to others."""
        return self is not IdleThen.WARN


class IdleRule(NamedTuple):
    """A job is idle when each of its GPUs computed for less than `below` (0 to 1) of the last `window`.

    It is warned then, and `then` follows when it is idle for `grace` more.
    """

    below: float = 0.1
    window: timedelta = timedelta(hours=1)
    grace: timedelta = timedelta(minutes=30)
    then: IdleThen = IdleThen.WARN

    def __str__(self) -> str:
        """The short form, which `typed_idle` reads back."""
        percent = f"{round(self.below * _HUNDRED, 1):g}%"
        return f"{percent},{written(self.window)},{written(self.grace)},{self.then}"


class IdleWarning(NamedTuple):
    """The warning of a job that has been idle since `since`. `release_at` None: the warning is all that happens."""

    since: datetime
    warned_at: datetime
    release_at: datetime | None


def typed_idle(text: str) -> IdleRule | None:
    """Read `10%,1h,30m,release`: utilisation, window, grace time and what follows; None if it is malformed.

    A part that is left out is as usual; a single time is the window.
    """
    below: float | None = None
    then: IdleThen | None = None
    lengths: list[timedelta] = []
    parts = text.lower().replace(",", " ").split()
    for part in parts:
        if part in list(IdleThen) and then is None:
            then = IdleThen(part)
        elif part.endswith("%") and below is None and (percent := _percent(part)) is not None:
            below = percent
        elif len(lengths) < _LENGTHS and (seconds := seconds_in(part)) is not None:
            lengths.append(timedelta(seconds=seconds))
        else:
            return None
    usual = IdleRule()
    window, grace = (lengths + [usual.window, usual.grace][len(lengths) :])[:_LENGTHS]
    return IdleRule(below or usual.below, window, grace, then or usual.then) if parts else None


def gentlest(rules: Iterable[IdleRule | None]) -> IdleRule | None:
    """The rule for a job with GPUs of several types, each with its own; None where one type has none."""
    found = list(rules)
    known = [rule for rule in found if rule is not None]
    if not known or len(known) < len(found):
        return None
    return IdleRule(
        min(rule.below for rule in known),
        max(rule.window for rule in known),
        max(rule.grace for rule in known),
        min((rule.then for rule in known), key=list(IdleThen).index),
    )


def _percent(text: str) -> float | None:
    try:
        below = round(float(text.removesuffix("%")) / _HUNDRED, 6)
    except ValueError:
        return None
    return below if 0 < below <= 1 else None

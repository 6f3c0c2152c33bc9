"""How much is held when: the peak, the sum in a week, and from when on a request would fit.

Amounts in weeks are GPU-time: one GPU for an hour is an hour. A week begins on Monday 00:00 UTC.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

WEEK = timedelta(days=7)
_MINUTE = timedelta(minutes=1)
A_MONDAY = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Held:
    """Some GPUs in [start, end)."""

    gpus: int
    start: datetime
    end: datetime


def week_start(moment: datetime) -> datetime:
    """The Monday 00:00 UTC at or before a time."""
    return A_MONDAY + (moment - A_MONDAY) // WEEK * WEEK


def whole_minute(moment: datetime) -> datetime:
    """The first whole minute at or after a time, when a booking can start."""
    return A_MONDAY - (A_MONDAY - moment) // _MINUTE * _MINUTE


def overlap(start: datetime, end: datetime, first: datetime, last: datetime) -> timedelta:
    """How long [start, end) and [first, last) overlap."""
    return max(min(end, last) - max(start, first), timedelta(0))


def levels(held: Sequence[Held]) -> list[tuple[datetime, int]]:
    """(time, GPUs held from then on) at each change, in order; 0 before the first."""
    steps: dict[datetime, int] = {}
    for holding in held:
        if holding.end > holding.start:
            steps[holding.start] = steps.get(holding.start, 0) + holding.gpus
            steps[holding.end] = steps.get(holding.end, 0) - holding.gpus
    changes, level = [], 0
    for moment in sorted(steps):
        level += steps[moment]
        changes.append((moment, level))
    return changes


def peak(held: Sequence[Held], start: datetime, end: datetime) -> int:
    """The most GPUs held at an instant of [start, end)."""
    return max((level[1] for level in levels([_clipped(holding, start, end) for holding in held])), default=0)


def peak_start(held: Sequence[Held], start: datetime, end: datetime) -> datetime:
    """The first instant of [start, end) at which the most GPUs are held."""
    of_time = levels([_clipped(holding, start, end) for holding in held])
    return max(of_time, key=lambda level: level[1], default=(start, 0))[0]


def gpu_time(held: Sequence[Held], first: datetime, last: datetime) -> timedelta:
    """The GPU-time held in [first, last)."""
    return sum((holding.gpus * overlap(holding.start, holding.end, first, last) for holding in held), timedelta(0))


def weeks_of(start: datetime, end: datetime) -> list[datetime]:
    """The starts of the weeks that [start, end) touches."""
    weeks = [week_start(start)]
    while weeks[-1] + WEEK < end:
        weeks.append(weeks[-1] + WEEK)
    return weeks


def earliest_at_once(
    held: Sequence[Held], gpus: int, limit: int, start: datetime, length: timedelta
) -> datetime | None:
    """The first whole minute from `start` on at which `gpus` more for `length` stay within `limit` at every instant.

    `start` itself need not be a whole minute. None if it is never possible.
    """
    if gpus > limit:
        return None
    steps = levels(held)
    at = start
    # Each step that is too high and overlaps the attempt moves it to the step's end.
    for index, (moment, level) in enumerate(steps):
        ends = steps[index + 1][0] if index + 1 < len(steps) else moment
        if level + gpus > limit and moment < at + length and ends > at:
            at = whole_minute(ends)
    return at


def earliest_in_weeks(
    held: Sequence[Held], gpus: int, limit: timedelta, start: datetime, length: timedelta
) -> datetime | None:
    """The first whole minute from `start` on at which `gpus` more for `length` keep every week within `limit`.

    `start` itself need not be a whole minute. None if it is never possible.
    """
    used: dict[datetime, timedelta] = {}
    for holding in held:
        for week in weeks_of(holding.start, holding.end):
            used[week] = used.get(week, timedelta(0)) + gpu_time([holding], week, week + WEEK)
    last = max((holding.end for holding in held), default=start)
    at = start
    # Beyond the last used week all weeks are alike: two starts are enough.
    while at <= max(last, start) + 2 * WEEK:
        for week in weeks_of(at, at + length):
            room = max(limit - used.get(week, timedelta(0)), timedelta(0)) // gpus
            if overlap(at, at + length, week, week + WEEK) > room:
                # A later start helps only if less of the request lies in this week.
                at = whole_minute(week + WEEK - room)
                break
        else:
            return at
    return None


def _clipped(held: Held, start: datetime, end: datetime) -> Held:
    return Held(held.gpus, max(held.start, start), min(held.end, end))

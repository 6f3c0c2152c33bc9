"""What a report of usage says: GPU-time held, used, idle and wasted, by user, project or type of GPU.

*Held* is what the ledger gave: the range of every row of a job or booking in the common layer of the calendar, cut to
the time asked for and to now. *Used* is the part of it in which a pod of ours ran, in a booking that of its jobs; and
of pods of others that were admitted under it, as far as its jobs leave cards for them.
*Idle* is held and not used. *Wasted* is the part of idle that can't come to anything any more: of bookings that are
over and in which nothing ever ran, and of attempts of jobs that never came to run. What runs within a booking is
counted once, as the booking's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import assert_never

SUMMED_AFTER = timedelta(minutes=2)
"""What was given back is told row by row for so long: no question asked now is about the time before that."""


class UsageBy(StrEnum):
    """What a report has a line for."""

    USER = "user"
    PROJECT = "project"
    GPU_TYPE = "gpu_type"


@dataclass(frozen=True, slots=True)
class GpuTime:
    """GPU-seconds, exact to the microsecond."""

    held: Decimal = Decimal(0)
    used: Decimal = Decimal(0)
    wasted: Decimal = Decimal(0)

    @property
    def idle(self) -> Decimal:
        """Held and not used."""
        return self.held - self.used

    def __add__(self, other: "GpuTime") -> "GpuTime":
        return GpuTime(self.held + other.held, self.used + other.used, self.wasted + other.wasted)


@dataclass(frozen=True, slots=True)
class UsageLine:
    """One user, project or type; `key` None is what was for no project."""

    key: str | None
    time: GpuTime


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Lines in the order of their keys; what has no key comes last."""

    lines: Sequence[UsageLine]

    @property
    def total(self) -> GpuTime:
        """The sum of all lines."""
        return sum((line.time for line in self.lines), GpuTime())


@dataclass(frozen=True, slots=True)
class UsageSeries:
    """GPU-time step by step, by key in order (what has no key comes last); each list has one entry for each step."""

    lines: Sequence[tuple[str | None, Sequence[GpuTime]]]


def steps_of(start: datetime, end: datetime, step: timedelta) -> list[tuple[datetime, datetime]]:
    """[start, end) in steps; the last may be shorter."""
    count = -((start - end) // step)
    return [(start + n * step, min(start + (n + 1) * step, end)) for n in range(count)]


class SumSpan(StrEnum):
    """Over what usage is summed: hours, days and months of UTC."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


@dataclass(frozen=True, slots=True)
class Edge:
    """A part of a step that is no whole hour."""

    step: int
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class SummedPart:
    """Whole hours, days or months that are added to a step (`sign` 1) or taken from it (-1)."""

    step: int
    span: SumSpan
    start: datetime
    end: datetime
    sign: int = 1


def partition_steps(steps: Sequence[tuple[datetime, datetime]]) -> tuple[list[Edge], list[SummedPart]]:
    """Make steps of the longest spans that sums have, and of what is left beside them.

    A step that begins in the first half of a day is made of that day less the hours before; and likewise at its end.
    """
    edges: list[Edge] = []
    summed: list[SummedPart] = []
    for number, (start, end) in enumerate(steps):
        first, last = _ceil(start, SumSpan.HOUR), _floor(end, SumSpan.HOUR)
        if first >= last:
            edges.append(Edge(number, start, end))
            continue
        edges += [Edge(number, *edge) for edge in ((start, first), (last, end)) if edge[0] < edge[1]]
        summed += [SummedPart(number, *part) for part in _hours(first, last)]
    return edges, summed


_A_DAY_COSTS = timedelta(hours=2)
"""A day has about as many sums as so many hours: somebody who had GPUs in any of its hours is in the day."""


def _hours(start: datetime, end: datetime) -> Iterator[tuple[SumSpan, datetime, datetime, int]]:
    """Make [start, end), which is whole hours, of hours, days and months."""
    first, last = _nearest_day(start), _nearest_day(end)
    if first >= last or abs(first - start) + abs(last - end) + _A_DAY_COSTS >= end - start:
        yield SumSpan.HOUR, start, end, 1
        return
    if first != start:
        yield SumSpan.HOUR, min(start, first), max(start, first), 1 if start < first else -1
    if last != end:
        yield SumSpan.HOUR, min(last, end), max(last, end), 1 if last < end else -1
    for part in _days(first, last):
        yield *part, 1


def _nearest_day(at: datetime) -> datetime:
    before, after = _floor(at, SumSpan.DAY), _ceil(at, SumSpan.DAY)
    return before if at - before <= after - at else after


def _days(start: datetime, end: datetime) -> Iterator[tuple[SumSpan, datetime, datetime]]:
    """Cut [start, end), which is whole days, into days and months."""
    first, last = _ceil(start, SumSpan.MONTH), _floor(end, SumSpan.MONTH)
    if first >= last:
        yield SumSpan.DAY, start, end
        return
    if start < first:
        yield SumSpan.DAY, start, first
    yield SumSpan.MONTH, first, last
    if last < end:
        yield SumSpan.DAY, last, end


def _floor(at: datetime, span: SumSpan) -> datetime:
    hour = at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    match span:
        case SumSpan.HOUR:
            return hour
        case SumSpan.DAY:
            return hour.replace(hour=0)
        case SumSpan.MONTH:
            return hour.replace(day=1, hour=0)
        case _:
            assert_never(span)


def _ceil(at: datetime, span: SumSpan) -> datetime:
    floor = _floor(at, span)
    if floor == at:
        return floor
    longest = {SumSpan.HOUR: timedelta(hours=1), SumSpan.DAY: timedelta(days=1), SumSpan.MONTH: timedelta(days=31)}
    return _floor(floor + longest[span], span)

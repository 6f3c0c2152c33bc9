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
    """A part of a step that is whole hours, days or months."""

    step: int
    span: SumSpan
    start: datetime
    end: datetime


def partition_steps(steps: Sequence[tuple[datetime, datetime]]) -> tuple[list[Edge], list[SummedPart]]:
    """Cut steps into the longest spans that sums have, and what is left beside them; together they are the steps."""
    edges: list[Edge] = []
    summed: list[SummedPart] = []
    for number, (start, end) in enumerate(steps):
        first, last = _ceil(start, SumSpan.HOUR), _floor(end, SumSpan.HOUR)
        if first >= last:
            edges.append(Edge(number, start, end))
            continue
        edges += [Edge(number, *edge) for edge in ((start, first), (last, end)) if edge[0] < edge[1]]
        summed += [SummedPart(number, *part) for part in _summed(first, last, SumSpan.HOUR)]
    return edges, summed


_LONGER = {SumSpan.HOUR: SumSpan.DAY, SumSpan.DAY: SumSpan.MONTH}


def _summed(start: datetime, end: datetime, span: SumSpan) -> Iterator[tuple[SumSpan, datetime, datetime]]:
    """Cut [start, end), which is whole spans, into these and longer ones."""
    if start >= end:
        return
    longer = _LONGER.get(span)
    if longer is None or (first := _ceil(start, longer)) >= (last := _floor(end, longer)):
        yield span, start, end
        return
    if start < first:
        yield span, start, first
    yield from _summed(first, last, longer)
    if last < end:
        yield span, last, end


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

"""Usage reports: GPU-time held, used, idle and wasted, by user, project or type of GPU.

*Held* is what the ledger gave: the ranges of jobs and bookings in the common calendar, cut to the report's time and to
now. *Used* is the part in which a pod ran; in a booking, its jobs' pods and, as far as these leave GPUs, admitted pods
of other systems. *Idle* is held and not used. *Wasted* is the part of idle that is lost for good: finished bookings in
which nothing ran, and attempts of jobs that never ran. What runs within a booking counts once, as the booking's.
*Costs* are of what was held, at the prices that the policy has now.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import assert_never

from reservation_core.domain.policy.limits import Policy
from reservation_core.domain.policy.prices import Money, sum_costs

SUMMED_AFTER = timedelta(minutes=2)
"""For how long returned time is reported row by row, so that no report can reach back before it."""


@dataclass(frozen=True, slots=True)
class GpuTime:
    """GPU-seconds, exact to the microsecond."""

    held: Decimal = Decimal(0)
    used: Decimal = Decimal(0)
    wasted: Decimal = Decimal(0)

    @property
    def idle(self) -> Decimal:
        return self.held - self.used

    def __add__(self, other: "GpuTime") -> "GpuTime":
        return GpuTime(self.held + other.held, self.used + other.used, self.wasted + other.wasted)


@dataclass(frozen=True, slots=True)
class UsedGpus:
    """What samples say of GPUs while jobs had them: their number, the sum of utilisations (0 to 1), the most memory.

    The utilisation is None where there are no samples, and so is memory: no data is not zero.
    """

    samples: int = 0
    busy: float = 0.0
    memory_peak: int | None = None

    @property
    def utilised(self) -> float | None:
        return self.busy / self.samples if self.samples else None

    def __add__(self, other: "UsedGpus") -> "UsedGpus":
        peaks = [peak for peak in (self.memory_peak, other.memory_peak) if peak is not None]
        return UsedGpus(self.samples + other.samples, self.busy + other.busy, max(peaks, default=None))


NOT_SAMPLED = UsedGpus()


@dataclass(frozen=True, slots=True)
class UsageLine:
    """The usage of one user, project or type; `key` None: without a project. `costs`: one for each unit."""

    key: str | None
    time: GpuTime
    costs: tuple[Money, ...] = ()


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Lines in the order of their keys; `key` None comes last."""

    lines: Sequence[UsageLine]

    @property
    def total(self) -> GpuTime:
        return sum((line.time for line in self.lines), GpuTime())

    @property
    def costs(self) -> tuple[Money, ...]:
        return sum_costs(cost for line in self.lines for cost in line.costs)


@dataclass(frozen=True, slots=True)
class UsagePart:
    """The part of a line that has one price: what one user held for one project of one type."""

    key: str | None
    user: str
    project: str | None
    gpu_type: str
    time: GpuTime


def price_parts(parts: Iterable[UsagePart], policy: Policy) -> UsageReport:
    """Sum up parts to lines, with their costs at the policy's prices."""
    times: dict[str | None, GpuTime] = {}
    costs: dict[str | None, list[Money]] = {}
    for part in parts:
        times[part.key] = times.get(part.key, GpuTime()) + part.time
        price = policy.price(part.user, part.project, part.gpu_type)
        if price is not None:
            costs.setdefault(part.key, []).append(price.of_time(part.time.held))
    return UsageReport([UsageLine(key, times[key], sum_costs(costs.get(key, ()))) for key in in_order(times)])


def in_order(keys: Iterable[str | None]) -> list[str | None]:
    """Keys by code points, not by a database's collation: pages continue after a key."""
    return sorted(keys, key=lambda key: (key is None, key or ""))


@dataclass(frozen=True, slots=True)
class UsageSeries:
    """GPU-time per step, by key in order (None comes last); each list has one entry per step."""

    lines: Sequence[tuple[str | None, Sequence[GpuTime]]]


def steps_of(start: datetime, end: datetime, step: timedelta) -> list[tuple[datetime, datetime]]:
    """[start, end) in steps; the last may be shorter."""
    count = -((start - end) // step)
    return [(start + n * step, min(start + (n + 1) * step, end)) for n in range(count)]


class SumSpan(StrEnum):
    """The spans of sums: hours, days and months of UTC."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


@dataclass(frozen=True, slots=True)
class Edge:
    """A part of a step that is not a whole hour."""

    step: int
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class SummedPart:
    """Whole hours, days or months to add to a step (`sign` 1) or subtract from it (-1)."""

    step: int
    span: SumSpan
    start: datetime
    end: datetime
    sign: int = 1


def partition_steps(steps: Sequence[tuple[datetime, datetime]]) -> tuple[list[Edge], list[SummedPart]]:
    """Split steps into the longest spans that have sums, and the rest.

    A step that begins in the first half of a day is that day minus the hours before it; likewise at the end.
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
"""A day costs about as many sums as this: a user of any of its hours has a sum for the day."""


def _hours(start: datetime, end: datetime) -> Iterator[tuple[SumSpan, datetime, datetime, int]]:
    """Split [start, end), which is whole hours, into hours, days and months."""
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
    """Split [start, end), which is whole days, into days and months."""
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

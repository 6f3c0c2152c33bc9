"""What a report of usage says: GPU-time held, used, idle and wasted, by user, project or type of GPU.

*Held* is what the ledger gave: the range of every row of a job or booking in the common layer of the calendar, cut to
the time asked for and to now. *Used* is the part of it in which a pod of ours ran, in a booking that of its jobs; and
of pods of others that were admitted under it, as far as its jobs leave cards for them.
*Idle* is held and not used. *Wasted* is the part of idle that can't come to anything any more: of bookings that are
over and in which nothing ever ran, and of attempts of jobs that never came to run. What runs within a booking is
counted once, as the booking's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum


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

"""GPU-hours in tables of usage: hundredths that add up to the sums that are shown, by line and by column."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class UsageFigures(Protocol):
    """A line of usage. Held is used and idle together; wasted is a part of idle."""

    used_gpu_hours: float
    idle_gpu_hours: float
    wasted_gpu_hours: float


class ShownUsage(NamedTuple):
    """A line as a table shows it."""

    held_gpu_hours: float
    used_gpu_hours: float
    idle_gpu_hours: float
    wasted_gpu_hours: float


def shown_usage(lines: Sequence[UsageFigures], total: UsageFigures) -> list[ShownUsage]:
    """The lines, and at the end their total, which is rounded by itself where lines are missing."""
    rounded = [_hundredths(line) for line in lines]
    last = _hundredths(total)
    summed = [sum(column) for column in zip(*rounded, strict=True)] or last
    if all(abs(one - other) <= len(lines) for one, other in zip(summed, last, strict=True)):
        last = summed
    return [
        ShownUsage(*(hundredths / 100 for hundredths in (used + idle, used, idle, wasted)))
        for used, idle, wasted in (*rounded, last)
    ]


def _hundredths(line: UsageFigures) -> list[int]:
    return [round(100 * hours) for hours in (line.used_gpu_hours, line.idle_gpu_hours, line.wasted_gpu_hours)]

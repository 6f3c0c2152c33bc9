"""GPU-hours in tables of usage: true totals, and lines in hundredths that add up to them."""

from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple, Protocol

_HUNDREDTH = 36_000_000
"""Microseconds in a hundredth of an hour."""


class UsageFigures(Protocol):
    """A line of usage. Held is used and idle together; wasted is a part of idle."""

    @property
    def used_gpu_s(self) -> Decimal | float: ...
    @property
    def idle_gpu_s(self) -> Decimal | float: ...
    @property
    def wasted_gpu_s(self) -> Decimal | float: ...


class ShownUsage(NamedTuple):
    """A line as a table shows it."""

    held_gpu_hours: float
    used_gpu_hours: float
    idle_gpu_hours: float
    wasted_gpu_hours: float


def shown_usage(lines: Sequence[UsageFigures], total: UsageFigures) -> list[ShownUsage]:
    """The lines, and at the end their total."""
    exact = [
        [round(1_000_000 * seconds) for seconds in (line.used_gpu_s, line.idle_gpu_s, line.wasted_gpu_s)]
        for line in (*lines, total)
    ]
    columns = [_hundredths(column) for column in zip(*exact, strict=True)]
    return [
        ShownUsage(*(hundredths / 100 for hundredths in (used + idle, used, idle, wasted)))
        for used, idle, wasted in zip(*columns, strict=True)
    ]


def _hundredths(column: Sequence[int]) -> list[int]:
    """Round each to hundredths. Where lines are all of the total, those with the largest remainders are rounded up."""
    *lines, total = [round(microseconds / _HUNDREDTH) for microseconds in column]
    if sum(column[:-1]) == column[-1]:
        lines = [microseconds // _HUNDREDTH for microseconds in column[:-1]]
        by_remainder = sorted(range(len(lines)), key=lambda line: -(column[line] % _HUNDREDTH))
        for line in by_remainder[: total - sum(lines)]:
            lines[line] += 1
    return [*lines, total]

"""Plots as geometry: places of columns and labels, in per cent of the width and in pixels of the height.

So a plot is as wide as the screen, and its words are as large as all others.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 100.0, 260
_TOP, _BOTTOM = 10, 34
_TICKS = 4
_MOST_LABELS = 10
_GAP = 0.25
_LEAST = 0.08
"""The lowest top of the axis, in GPU-hours."""


@dataclass(frozen=True, slots=True)
class PlotColumn:
    """One step, from `x` and `width` wide: held hours up to `held_y`, used hours of them up to `used_y`.

    Of these GPUs were busy for the hours up to `busy_y`; None: nobody says.
    """

    x: float
    width: float
    held_y: float
    used_y: float
    busy_y: float | None
    words: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A label and its place on an axis."""

    at: float
    words: str


@dataclass(frozen=True, slots=True)
class ColumnPlot:
    """Columns over time, all standing on `base`; `ticks` are heights, `labels` places along the base."""

    columns: Sequence[PlotColumn]
    ticks: Sequence[Mark]
    labels: Sequence[Mark]
    base: float = HEIGHT - _BOTTOM
    height: int = HEIGHT


def column_plot(
    held: Sequence[float], used: Sequence[float], busy: Sequence[float | None], labels: Sequence[str]
) -> ColumnPlot:
    """One column a step; the sequences have one entry a step. Used hours are drawn within held ones, busy in used."""
    top = _rounded_up(max(_LEAST, *held) if held else 0.0)
    base, high = HEIGHT - _BOTTOM, HEIGHT - _BOTTOM - _TOP
    room = WIDTH / max(1, len(held))
    columns = [
        PlotColumn(
            x=round(room * (index + _GAP / 2), 3),
            width=round(room * (1 - _GAP), 3),
            held_y=round(base - high * have / top, 2),
            used_y=round(base - high * min(took, have) / top, 2),
            busy_y=None if did is None else round(base - high * min(did, took, have) / top, 2),
            words=f"{label}: {_number(have)} GPU-hours held, {_number(took)} used"
            + ("" if did is None else f", {_number(did)} busy"),
        )
        for index, (have, took, did, label) in enumerate(zip(held, used, busy, labels, strict=True))
    ]
    every = max(1, math.ceil(len(labels) / _MOST_LABELS))
    return ColumnPlot(
        columns,
        ticks=[Mark(round(base - high * n / _TICKS, 2), _number(top * n / _TICKS)) for n in range(_TICKS + 1)],
        labels=[Mark(round(room * (index + 0.5), 3), labels[index]) for index in range(0, len(labels), every)],
    )


def shares(values: Sequence[float], of: float) -> list[float]:
    """The lengths of bars, in per cent of the longest."""
    return [0.0 if of <= 0 else round(100 * min(1.0, value / of), 2) for value in values]


def _rounded_up(value: float) -> float:
    """A height that divides well: 1, 2, 4 or 8 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10 ** math.floor(math.log10(value))
    return float(next(step * power for step in (1, 2, 4, 8, 10) if step * power >= value * (1 - 1e-9)))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2g}"


@dataclass(frozen=True, slots=True)
class CurvePlot:
    """Two curves from the lower left: points in a square of 100; `labels` in per cent of the width, `ticks` heights."""

    before: str
    after: str
    ticks: Sequence[Mark]
    labels: Sequence[Mark]
    top: int = _TOP
    base: float = HEIGHT - _BOTTOM
    height: int = HEIGHT


_TIMES = {60: "1 min", 600: "10 min", 3600: "1 h", 21_600: "6 h", 86_400: "1 d", 604_800: "1 w", 2_592_000: "30 d"}


def curve_plot(before: Sequence[tuple[float, float]], after: Sequence[tuple[float, float]]) -> CurvePlot:
    """Curves of (wait in seconds, part of all that waited no longer). The axis of waits is logarithmic, from none."""
    longest = max(60.0, *(wait for wait, _ in (*before, *after)))

    def across(wait: float) -> float:
        return round(100 * math.log1p(wait / 10) / math.log1p(longest / 10), 2)

    def points(curve: Sequence[tuple[float, float]]) -> str:
        places, share = [(0.0, 100.0)], 0.0
        for wait, part in curve:
            # Upright and level: between two waits nothing is known of others.
            places += [(across(wait), round(100 - 100 * share, 2)), (across(wait), round(100 - 100 * part, 2))]
            share = part
        return " ".join(f"{x:g},{y:g}" for x, y in [*places, (100.0, places[-1][1])])

    base, high = HEIGHT - _BOTTOM, HEIGHT - _BOTTOM - _TOP
    return CurvePlot(
        points(before),
        points(after),
        ticks=[Mark(round(base - high * n / _TICKS, 2), f"{100 * n // _TICKS} %") for n in range(_TICKS + 1)],
        labels=[Mark(0.0, "none"), *(Mark(across(at), words) for at, words in _TIMES.items() if at <= longest)],
    )

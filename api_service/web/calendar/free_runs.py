"""How many GPUs of a row are free when: runs of equal counts, from one change to the next.

Times are ints as in `reservation_core.domain.calendar`.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from api_service.web.calendar.timeline_window import DayWindow
from reservation_core.domain.bookings.busy_ranges import BusyRanges
from reservation_core.domain.bookings.card_choice import BookableGpu

_SECOND = 1_000_000
_NONE = np.array([], dtype=np.int64)


class FreeRun(NamedTuple):
    """[start, end) with the smallest and the largest number of free GPUs in it: the same, unless runs were joined."""

    start: int
    end: int
    least: int
    most: int


@dataclass(frozen=True, slots=True, eq=False)
class FreeCounts:
    """Exact counts: `free[i]` GPUs from `starts[i]` to the next start, and the last until `end`."""

    starts: NDArray[np.int64]
    free: NDArray[np.int64]
    end: int


def free_counts(cards: Iterable[BookableGpu], start: int, end: int) -> FreeCounts:
    """The counts in [start, end): a run ends where a count changes."""
    if start >= end:
        return FreeCounts(_NONE, _NONE, end)
    busy = [BusyRanges.of(card.busy) for card in cards if card.available]
    begun, begins = _summed([ranges.begins for ranges in busy])
    over, ends = _summed([ranges.ends for ranges in busy])
    bounds = np.sort(np.concatenate([begun, over]))
    starts = np.concatenate([[start], bounds[(start < bounds) & (bounds < end)]])
    free = len(busy) - begins[np.searchsorted(begun, starts, "right")] + ends[np.searchsorted(over, starts, "right")]
    # A moment at which something begins and something ends is there twice, with the same count.
    changed = np.concatenate([[True], free[1:] != free[:-1]])
    return FreeCounts(starts[changed], free[changed], end)


def _summed(bounds: Sequence[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The different times, in order, and how many bounds lie before each of them; last, how many there are."""
    moments, counts = np.unique(np.concatenate([_NONE, *bounds]), return_counts=True)
    return moments, np.concatenate([[0], np.cumsum(counts)])


def runs_of(counts: FreeCounts, most: int) -> list[FreeRun]:
    """At most so many runs (2 or more): of too many, short neighbours are joined, and long ones stay exact."""
    if not len(counts.starts):
        return []
    starts = counts.starts.tolist()
    firsts = list(range(len(starts))) if len(starts) <= most else _joined_from([*starts, counts.end], most)
    least, largest = (extreme.reduceat(counts.free, firsts).tolist() for extreme in (np.minimum, np.maximum))
    bounds = [*(starts[first] for first in firsts), counts.end]
    return [FreeRun(*run) for run in zip(bounds, bounds[1:], least, largest, strict=False)]


def _joined_from(bounds: Sequence[int], most: int) -> list[int]:
    """The first run of each joined one; `bounds` are the starts of all runs, and the end of the last."""
    short = 2 * (bounds[-1] - bounds[0]) // (most - 1) + 1
    firsts, first, after = [], 0, len(bounds) - 1
    while first < after:
        firsts.append(first)
        # Joined are so many as are needed not to be short; of these only the last may be long by itself.
        reached = min(bisect_left(bounds, bounds[first] + short, first + 1), after)
        alone = reached - 1 > first and bounds[reached] - bounds[reached - 1] >= short
        first = reached - 1 if alone else reached
    return firsts


def extremes_between(counts: FreeCounts, bounds: Sequence[int]) -> list[tuple[int, int] | None]:
    """The smallest and the largest count in each step [bounds[i], bounds[i + 1]); None where there is no run."""
    found: list[tuple[int, int] | None] = []
    firsts = np.maximum(np.searchsorted(counts.starts, bounds, "right") - 1, 0).tolist()
    afters = np.searchsorted(counts.starts, bounds, "left").tolist()
    for (start, _), first, after in zip(pairwise(bounds), firsts, afters[1:], strict=False):
        within = counts.free[first:after] if start < counts.end else _NONE
        found.append((int(within.min()), int(within.max())) if len(within) else None)
    return found


def on_wall(runs: Sequence[FreeRun], window: DayWindow) -> list[FreeRun]:
    """The runs by the clock on the wall, in whole seconds from the window's first midnight.

    An hour that the clock skips has no run; one that comes twice has one run for both times.
    """
    made: list[FreeRun] = []
    for spell in window.spells:
        shift = spell.offset - window.midnight
        pieces = [
            FreeRun(begin, over, run.least, run.most)
            for run in runs
            if run.start < spell.end and spell.start < run.end
            for begin, over in (
                (
                    (max(run.start, spell.start) + shift) // _SECOND,
                    (min(run.end, spell.end) + shift) // _SECOND,
                ),
            )
            if begin < over
        ]
        if made and pieces and pieces[0].start < made[-1].end:
            made = _twice(made, pieces)
        else:
            made += pieces
    return made


def _twice(before: Sequence[FreeRun], after: Sequence[FreeRun]) -> list[FreeRun]:
    """Runs of two spells, of which the second begins, by the clock on the wall, before the first ends."""
    begin, over = after[0].start, before[-1].end
    both = _joined([run for run in [*before, *after] if run.start < over and begin < run.end])
    return [
        *(run._replace(end=min(run.end, begin)) for run in before if run.start < begin),
        both._replace(start=begin, end=over),
        *(run._replace(start=max(run.start, over)) for run in after if over < run.end),
    ]


def _joined(runs: Sequence[FreeRun]) -> FreeRun:
    return FreeRun(runs[0].start, runs[-1].end, min(run.least for run in runs), max(run.most for run in runs))

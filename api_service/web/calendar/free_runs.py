"""How many GPUs of a row are free when: runs of equal counts, from one change to the next.

Times are ints as in `reservation_core.domain.calendar`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from api_service.web.calendar.timeline_window import DayWindow
from reservation_core.domain.bookings.card_choice import BookableGpu

_SECOND = 1_000_000


class FreeRun(NamedTuple):
    """[start, end) with the smallest and the largest number of free GPUs in it: the same, unless runs were joined."""

    start: int
    end: int
    least: int
    most: int


def free_runs(cards: Iterable[BookableGpu], start: int, end: int) -> list[FreeRun]:
    """The exact counts in [start, end): a run ends where a count changes."""
    usable = [card for card in cards if card.available]
    # Bounds are counted before anything is done with them: many of them are of one moment.
    begins = Counter(begin for card in usable for begin, over in card.busy if begin < end and over > start)
    overs = Counter(over for card in usable for begin, over in card.busy if begin < end and over > start)
    changes: dict[int, int] = {}
    for moment, count in begins.items():
        changes[max(moment, start)] = changes.get(max(moment, start), 0) - count
    for moment, count in overs.items():
        changes[min(moment, end)] = changes.get(min(moment, end), 0) + count
    free = len(usable)
    runs: list[FreeRun] = []
    at = start
    for moment in sorted(changes):
        if changes[moment] and at < moment:
            runs.append(FreeRun(at, moment, free, free))
            at = moment
        free += changes[moment]
    if at < end:
        runs.append(FreeRun(at, end, free, free))
    return runs


def at_most(runs: Sequence[FreeRun], most: int) -> list[FreeRun]:
    """At most so many runs (2 or more): of too many, short neighbours are joined, and long ones stay exact."""
    if len(runs) <= most:
        return list(runs)
    short = 2 * (runs[-1].end - runs[0].start) // (most - 1) + 1
    made: list[FreeRun] = []
    start, end, least, most_free = runs[0]
    for run in runs[1:]:
        if end - start < short and run.end - run.start < short:
            end, least, most_free = run.end, min(least, run.least), max(most_free, run.most)
        else:
            made.append(FreeRun(start, end, least, most_free))
            start, end, least, most_free = run
    return [*made, FreeRun(start, end, least, most_free)]


def extremes_between(runs: Sequence[FreeRun], bounds: Sequence[int]) -> list[tuple[int, int] | None]:
    """The smallest and the largest count in each step [bounds[i], bounds[i + 1]); None where there is no run."""
    found: list[tuple[int, int] | None] = []
    first = 0
    for start, end in pairwise(bounds):
        while first < len(runs) and runs[first].end <= start:
            first += 1
        after = first
        while after < len(runs) and runs[after].start < end:
            after += 1
        within = runs[first:after]
        found.append((min(run.least for run in within), max(run.most for run in within)) if within else None)
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

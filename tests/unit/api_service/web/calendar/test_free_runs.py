"""The runs of free counts against counting minute by minute, by instants and by the clock on the wall."""

from collections import defaultdict
from datetime import date, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from api_service.web.calendar.free_runs import extremes_between, free_counts, on_wall, runs_of
from api_service.web.calendar.timeline_window import DayWindow, TimelineScale, window_of
from reservation_core.domain.bookings.card_choice import BookableGpu
from reservation_core.domain.calendar import Range, merge, to_micros

MINUTE = 60_000_000
# In Berlin clocks went forward on 31 March 2030, and back on 27 October; in Beirut forward at midnight.
DAYS = [date(2030, 3, 4), date(2030, 3, 31), date(2030, 10, 27)]


def gpus(drawn: list[list[Range]], at: int = 0, step: int = 1) -> list[BookableGpu]:
    """A GPU for each list of starts and lengths."""
    return [
        BookableGpu(
            number, "n", number, "t", True, tuple(merge((at + a * step, at + (a + b) * step) for a, b in ranges))
        )
        for number, ranges in enumerate(drawn)
    ]


def counted(cards: list[BookableGpu], moment: int) -> int:
    """How many are free at a moment."""
    return sum(card.available and all(not a <= moment < b for a, b in card.busy) for card in cards)


some_cards = st.lists(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=5), max_size=4)


@given(some_cards, st.integers(0, 70), st.integers(0, 70))
def test_runs_are_what_counting_says_and_as_long_as_can_be(drawn: list[list[Range]], start: int, end: int) -> None:
    cards = [*gpus(drawn), BookableGpu(99, "n", 99, "t", False)]
    runs = runs_of(free_counts(cards, start, end), 100)
    told = [run.least for run in runs for _ in range(run.start, run.end)]
    assert told == [counted(cards, moment) for moment in range(start, end)]
    assert all(run.least == run.most for run in runs)
    assert all((a.end, a.least != b.least) == (b.start, True) for a, b in pairwise(runs))


@given(some_cards, st.integers(2, 8))
def test_of_too_many_runs_short_ones_are_joined(drawn: list[list[Range]], most: int) -> None:
    counts = free_counts(gpus(drawn), 0, 80)
    exact, fewer = runs_of(counts, 100), runs_of(counts, most)
    assert len(fewer) <= max(most, 1)
    assert (fewer[0].start, fewer[-1].end) == (0, 80)
    for run in fewer:
        within = [of.least for of in exact if of.start < run.end and run.start < of.end]
        assert (run.least, run.most) == (min(within), max(within))
    longest = max(exact, key=lambda run: run.end - run.start)
    if longest.end - longest.start > 2 * 80 // (most - 1):
        assert longest in fewer


@given(some_cards, st.lists(st.integers(0, 60), min_size=2, max_size=12, unique=True).map(sorted))
def test_steps_have_the_least_and_the_most(drawn: list[list[Range]], bounds: list[int]) -> None:
    cards = gpus(drawn)
    expected = []
    for start, end in pairwise(bounds):
        counts = [counted(cards, moment) for moment in range(max(start, 20), end)]
        expected.append((min(counts), max(counts)) if counts else None)
    assert extremes_between(free_counts(cards, 20, 80), bounds) == expected


@given(
    st.sampled_from(list(TimelineScale)),
    st.sampled_from(["Europe/Berlin", "Asia/Beirut", "Asia/Kolkata", "America/Havana"]),
    st.sampled_from(DAYS),
    st.lists(st.lists(st.tuples(st.integers(0, 30 * 1440), st.integers(1, 4000)), max_size=4), max_size=3),
    st.integers(0, 3000),
)
def test_a_clock_on_the_wall_shows_what_counting_says_at_every_zoom(
    view: TimelineScale, zone: str, day: date, drawn: list[list[Range]], late: int
) -> None:
    """Each minute of the window is counted; in an hour that comes twice the least and the most is shown."""
    window = window_of(view, day, ZoneInfo(zone))
    minutes = (window.end - window.start) // timedelta(minutes=1)
    late = min(late, minutes)
    start = to_micros(window.start)
    counts = free_counts(gpus(drawn, start, MINUTE), start + late * MINUTE, to_micros(window.end))
    runs = runs_of(counts, 100)
    shown: dict[int, tuple[int, int]] = {}
    for run in on_wall(runs, window):
        for minute in range(run.start // 60, run.end // 60):
            assert minute not in shown
            shown[minute] = (run.least, run.most)

    free = [len(drawn)] * minutes
    for ranges in drawn:
        busy = {minute for first, length in ranges for minute in range(first, min(first + length, minutes))}
        for minute in busy:
            free[minute] -= 1
    counted: dict[int, list[int]] = defaultdict(list)
    for minute in range(late, minutes):
        counted[minute_on_wall(window, minute)].append(free[minute])
    twice = sorted(minute for minute, counts in counted.items() if len(counts) > 1)
    of_both = [minute for minute in counted if twice and twice[0] // 60 == minute // 60]
    expected = {minute: (min(counts), max(counts)) for minute, counts in counted.items()}
    extremes = [count for minute in of_both for count in counted[minute]]
    assert shown == expected | {minute: (min(extremes), max(extremes)) for minute in of_both}


def minute_on_wall(window: DayWindow, minute: int) -> int:
    """Minutes since the first midnight that a clock shows so many minutes after the window's start."""
    quarter, rest = divmod(minute, 15)
    return _quarter_on_wall(window, quarter) + rest


@cache
def _quarter_on_wall(window: DayWindow, quarter: int) -> int:
    local = (window.start + quarter * timedelta(minutes=15)).astimezone(window.zone).replace(tzinfo=None)
    return (local - datetime(window.first.year, window.first.month, window.first.day)) // timedelta(minutes=1)  # noqa: DTZ001

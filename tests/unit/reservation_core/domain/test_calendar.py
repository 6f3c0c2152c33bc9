"""Ranges, gaps and windows, against counting minute by minute."""

from datetime import timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.calendar import (
    FOREVER,
    GpuCalendar,
    is_free_during,
    length_micros,
    merge,
    node_windows,
    to_micros,
    to_moment,
    windows_of_at_least,
)
from tests.unit.reservation_core.domain.planning.worlds import T0

END = 40
ranges = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 8)).map(
        lambda drawn_pair: (drawn_pair[0], drawn_pair[0] + drawn_pair[1])
    ),
    max_size=5,
)


def minutes(busy: list[tuple[int, int]]) -> set[int]:
    return {minute for start, end in busy for minute in range(start, end)}


@given(ranges)
def test_merged_ranges_are_the_same_time(busy: list[tuple[int, int]]) -> None:
    merged = merge(busy)
    assert minutes(merged) == minutes(busy)
    assert all(left[1] < right[0] for left, right in pairwise(merged))


@given(ranges, st.integers(0, 35), st.integers(1, 10))
def test_free_during_is_half_open(busy: list[tuple[int, int]], start: int, length: int) -> None:
    assert is_free_during(busy, start, start + length) == minutes(busy).isdisjoint(range(start, start + length))


@given(ranges, st.integers(1, 10), st.integers(0, 10))
def test_windows_hold_every_start_that_fits(busy: list[tuple[int, int]], length: int, now: int) -> None:
    windows = node_windows([merge(busy)], 1, length, now)
    assert windows[-1][1] == FOREVER
    for start in range(now, END):
        fits = minutes(busy).isdisjoint(range(start, start + length))
        assert any(first <= start <= last for first, last in windows) == fits


@given(st.lists(ranges, min_size=1, max_size=4), st.integers(1, 4), st.integers(1, 6))
def test_a_node_fits_where_enough_of_its_cards_do(cards: list[list[tuple[int, int]]], gpus: int, length: int) -> None:
    windows = node_windows([merge(busy) for busy in cards], gpus, length, 0)
    for start in range(END):
        fitting = sum(minutes(busy).isdisjoint(range(start, start + length)) for busy in cards)
        assert any(first <= start <= last for first, last in windows) == (fitting >= gpus)


def test_more_than_there_are_never_fit() -> None:
    assert windows_of_at_least(2, [[(0, FOREVER)]]) == []


def test_a_hold_is_busy_until_it_is_let_go() -> None:
    second = 1_000_000
    calendar = GpuCalendar([(5 * second, 10 * second, True, "r")])
    assert calendar.busy(0) == [(0, 10 * second)]
    assert calendar.busy(10 * second) == [(5 * second, 70 * second)]
    assert not calendar.is_free(20 * second)
    assert calendar.overruns(10 * second)
    assert not calendar.overruns(10 * second - 1)
    calendar.remove("r")
    assert calendar.is_free(20 * second)


def test_a_promise_counts_only_in_its_time() -> None:
    calendar = GpuCalendar([(5, 10, False, "r")])
    assert [calendar.is_free(now) for now in (4, 5, 9, 10)] == [True, False, False, True]
    assert calendar.busy(10) == []


def test_times_are_exact_to_the_microsecond() -> None:
    moment = T0 + timedelta(days=40_000, microseconds=1)
    assert to_moment(to_micros(moment)) == moment
    assert length_micros(timedelta(days=3, seconds=2, microseconds=1)) == 259_202_000_001

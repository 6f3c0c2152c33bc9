"""Busy ranges are the sequence that a tuple of them in order is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.bookings.busy_ranges import BusyRanges
from reservation_core.domain.calendar import Range

some_ranges = st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)), max_size=6)


def ranges_of(drawn: list[Range]) -> BusyRanges:
    return BusyRanges(np.array([begin for begin, _ in drawn]), np.array([end for _, end in drawn]))


@given(some_ranges)
def test_ranges_are_in_order_whatever_order_their_bounds_have(drawn: list[Range]) -> None:
    ranges = ranges_of(drawn)
    assert len(ranges) == len(drawn)
    assert list(ranges) == sorted(drawn)
    assert ranges[:2] == tuple(sorted(drawn)[:2])
    assert all(type(bound) is int for found in ranges for bound in found)


@given(some_ranges, some_ranges)
def test_they_equal_what_has_the_same_ranges(some: list[Range], others: list[Range]) -> None:
    ranges = ranges_of(some)
    assert ranges == tuple(sorted(some))
    assert hash(ranges) == hash(ranges_of(some[::-1]))
    assert (ranges == ranges_of(others)) is (sorted(some) == sorted(others))


def test_bounds_of_other_sequences_are_taken_as_they_are() -> None:
    ranges = BusyRanges.of(((3, 4), (1, 2)))
    assert (ranges.begins.tolist(), ranges.ends.tolist()) == ([3, 1], [4, 2])
    assert BusyRanges.of(ranges) is ranges
    assert BusyRanges.of(()).begins.tolist() == []
    with pytest.raises(IndexError):
        BusyRanges.of(())[0]

"""Decayed usage, by hand and by adding up small pieces, and who goes first."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.fair_share import decayed, ranks
from reservation_core.domain.quota_windows import Held

NOW = datetime(2030, 1, 1, tzinfo=UTC)
HALF = timedelta(hours=10)


def hours_ago(number: float) -> datetime:
    return NOW - timedelta(hours=number)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 60), st.integers(0, 60)), max_size=5))
def test_it_is_the_sum_of_small_pieces(spans: list[tuple[int, int, int]]) -> None:
    held = [Held(gpus, hours_ago(max(a, b)), hours_ago(min(a, b))) for gpus, a, b in spans]
    piece = timedelta(minutes=6)
    expected = 0.0
    for each in held:
        at = each.start
        while at < each.end:
            expected += each.gpus * piece.total_seconds() * 2 ** -((NOW - at - piece / 2) / HALF)
            at += piece
    assert decayed(held, HALF, NOW) == pytest.approx(expected, rel=1e-5)


def test_what_was_a_half_life_ago_counts_half() -> None:
    lately = decayed([Held(1, hours_ago(2), hours_ago(1))], HALF, NOW)
    before = decayed([Held(1, hours_ago(12), hours_ago(11))], HALF, NOW)
    assert before == pytest.approx(lately / 2)


def test_the_future_counts_for_nothing() -> None:
    assert decayed([Held(8, NOW, NOW + HALF)], HALF, NOW) == 0
    running = decayed([Held(1, hours_ago(1), NOW + HALF)], HALF, NOW)
    assert running == pytest.approx(decayed([Held(1, hours_ago(1), NOW)], HALF, NOW))


def test_less_goes_first_and_what_is_alike_goes_together() -> None:
    assert ranks({1: 5000.0, 2: 100.0, 3: 101.0, 4: 90_000.0, 5: 3.0}) == {2: 1, 3: 1, 1: 2, 4: 3}
    assert ranks({}) == {}

"""Buckets of tokens against one that is reckoned anew from all that was taken, and what floods can't do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.people.token_buckets import Pace, TokenBuckets, whole_seconds

PACE = Pace(per_s=2.0, burst=3)
STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0, 5.0])), max_size=60)


def _left(taken: list[float], now: float) -> float:
    """Tokens in a bucket from which one was taken at these times."""
    left, at = float(PACE.burst), 0.0
    for value in taken:
        left = min(PACE.burst, left + (value - at) * PACE.per_s) - 1
        at = value
    return min(PACE.burst, left + (now - at) * PACE.per_s)


@given(STEPS)
def test_each_has_a_bucket_that_fills_again(steps: list[tuple[str, float]]) -> None:
    buckets, now = TokenBuckets(PACE, most=10), 0.0
    taken: dict[str, list[float]] = {"a": [], "b": [], "c": []}
    for key, later in steps:
        now += later
        left = _left(taken[key], now)
        wait = buckets.take(key, now)
        if left >= 1:
            assert wait == 0
            taken[key].append(now)
        else:
            assert wait == pytest.approx((1 - left) / PACE.per_s)
            # A caller that waits so long is let through.
            assert _left(taken[key], now + wait) == pytest.approx(1)


@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from([0.0, 0.01, 0.1, 2.0])), max_size=200))
def test_memory_is_bounded_whoever_comes(steps: list[tuple[int, float]]) -> None:
    buckets, now = TokenBuckets(PACE, most=4), 0.0
    for key, later in steps:
        now += later
        buckets.take(key, now)
        assert len(buckets) <= 5


def test_a_flood_of_others_gives_nobody_a_fresh_bucket() -> None:
    buckets = TokenBuckets(PACE, most=100)
    for _ in range(PACE.burst):
        assert buckets.take("eve", 0) == 0
    let_through = sum(buckets.take(number, 0) == 0 for number in range(10_000))
    # As many as have a bucket of their own, and what all others share.
    assert let_through == 99 + PACE.burst
    assert buckets.take("eve", 0) > 0


def test_what_is_full_again_makes_room() -> None:
    buckets = TokenBuckets(PACE, most=2)
    for key in ("a", "b", "c", "d"):
        buckets.take(key, 0)
    later = PACE.burst / PACE.per_s
    for key in ("e", "f"):
        for _ in range(PACE.burst):
            assert buckets.take(key, later) == 0
    assert len(buckets) == 2


def test_waits_are_said_in_whole_seconds() -> None:
    assert [whole_seconds(wait) for wait in (0.01, 1.0, 1.2, 99.5)] == [1, 1, 2, 100]

"""How fast pods are created."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.adapters.kubernetes.api_server.create_pacing import CreatePacing


def taken(pacing: CreatePacing, start: float, seconds: float) -> int:
    """How many turns somebody gets in that time who always wants the next."""
    now, turns = start, 0
    while now < start + seconds:
        wait = pacing.take(now)
        if wait == 0:
            turns += 1
        now += wait
    return turns


def test_the_rate_holds_in_the_long_run_and_a_short_burst_at_once() -> None:
    pacing = CreatePacing(50)
    assert taken(pacing, 0, 0.000001) == 10
    assert 498 <= taken(pacing, 0, 10) <= 501


def test_without_a_limit_only_the_pauses_that_the_server_asks_for_count() -> None:
    pacing = CreatePacing(0)
    assert [pacing.take(1.0) for _ in range(1000)] == [0.0] * 1000
    pacing.slow_down(1.0)
    assert pacing.take(1.0) == 0
    pacing.slow_down(1.0, retry_after=3)
    assert pacing.take(2.0) == 2
    assert pacing.take(4.0) == 0


def test_pushing_back_halves_the_rate_once_for_one_overload() -> None:
    pacing = CreatePacing(64)
    for _ in range(20):
        pacing.slow_down(100)
    assert pacing.rate(100) == 32
    pacing.slow_down(100.5)
    assert 32 < pacing.rate(100.5) < 34


def test_the_rate_grows_back_evenly_to_what_it_was() -> None:
    pacing = CreatePacing(64)
    pacing.slow_down(0)
    rates = [pacing.rate(second) for second in range(0, 12, 2)]
    steps = [later - earlier for earlier, later in pairwise(rates)]
    assert max(steps) - min(steps) < 1e-9
    assert rates[-1] == 64
    assert pacing.rate(1000) == 64


def test_an_overload_that_lasts_never_stops_it_altogether() -> None:
    pacing = CreatePacing(64)
    for second in range(1000):
        pacing.slow_down(second)
    assert 1 <= pacing.rate(999) <= 64 / 16
    slow = CreatePacing(0.5)
    for second in range(1000):
        slow.slow_down(second)
    assert slow.rate(999) == 0.5


def test_the_server_is_left_alone_for_as_long_as_it_asks() -> None:
    pacing = CreatePacing(50)
    pacing.slow_down(10, retry_after=5)
    pacing.slow_down(11, retry_after=1)
    assert pacing.take(12) == 3
    assert taken(pacing, 10, 5) == 0


def test_nobody_can_ask_for_more_than_a_minute() -> None:
    """What stands between us and the server may say anything."""
    pacing = CreatePacing(50)
    pacing.slow_down(10, retry_after=999_999)
    assert pacing.take(10) == 60


@given(
    st.floats(0.1, 10_000),
    st.lists(st.tuples(st.floats(0, 5), st.none() | st.floats(0, 10)), max_size=20),
)
def test_no_second_ever_sees_more_than_the_rate_and_one_burst(
    per_s: float, events: list[tuple[float, float | None]]
) -> None:
    pacing, now = CreatePacing(per_s), 0.0
    for gap, retry_after in events:
        now += gap
        pacing.slow_down(now, retry_after)
        turns = 0
        while pacing.take(now) == 0:
            turns += 1
        assert turns <= max(1.0, per_s * 0.2)
        assert pacing.take(now) > 0

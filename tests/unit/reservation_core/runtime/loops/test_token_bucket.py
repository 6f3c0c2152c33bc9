"""The token bucket, in virtual time."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.runtime.loops.token_bucket import TokenBucket
from tests.virtual_time import run_virtually


def times(rate: float, burst: float, arrivals: list[float]) -> list[float]:
    """When operations that ask at these times are let through."""

    async def ask(bucket: TokenBucket, at: float) -> float:
        await asyncio.sleep(at)
        await bucket.take()
        return asyncio.get_running_loop().time()

    async def all_of_them() -> list[float]:
        bucket = TokenBucket(rate, burst)
        return sorted(await asyncio.gather(*(ask(bucket, at) for at in arrivals)))

    return run_virtually(all_of_them())


def test_a_burst_goes_at_once_and_the_rest_at_its_rate() -> None:
    assert times(2, 3, [0] * 7) == pytest.approx([0, 0, 0, 0.5, 1, 1.5, 2])


def test_a_rest_earns_a_burst_and_no_more() -> None:
    assert times(2, 3, [0] * 3 + [100] * 5) == pytest.approx([0, 0, 0, 100, 100, 100, 100.5, 101])


def test_many_that_begin_together_wait_for_the_last_ones_token() -> None:
    async def together() -> list[float]:
        bucket = TokenBucket(2, 3)
        clock = asyncio.get_running_loop().time
        through = []
        for count in (3, 2, 4):
            await bucket.take(count)
            through.append(clock())
        return through

    assert run_virtually(together()) == pytest.approx([0, 1, 3])


def test_a_burst_below_one_still_lets_one_through() -> None:
    assert times(1, 0, [0, 0]) == pytest.approx([0, 1])


@given(
    st.floats(0.1, 1000),
    st.floats(0, 20),
    st.lists(st.floats(0, 100), min_size=1, max_size=60),
)
def test_no_stretch_of_time_has_more_than_burst_and_rate_allow(
    rate: float, burst: float, arrivals: list[float]
) -> None:
    through = times(rate, burst, arrivals)
    for first, begun in enumerate(through):
        for last in range(first, len(through)):
            allowed = max(1.0, burst) + rate * (through[last] - begun)
            assert last - first + 1 <= allowed + 1e-6 * len(arrivals) + 1e-9 * rate * 1000

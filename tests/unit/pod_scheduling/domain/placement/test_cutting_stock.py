"""The prices of shares: no way to cut a card is worth more than the card, and together they say how many it takes."""

from functools import cache
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pod_scheduling.domain.placement.cutting_stock import card_prices


def ways(sizes: list[int]) -> list[tuple[int, ...]]:
    """All ways to cut a card."""
    counts = [range(1000 // size + 1) for size in sizes]
    return [way for way in product(*counts) if sum(n * size for n, size in zip(way, sizes, strict=True)) <= 1000]


def cards_needed(asked: dict[int, int]) -> int:
    """The fewest whole cards, by trying everything."""
    sizes = list(asked)
    able = [way for way in ways(sizes) if any(way)]

    @cache
    def needed(left: tuple[int, ...]) -> int:
        if not any(left):
            return 0
        first = next(i for i, count in enumerate(left) if count)
        return 1 + min(
            needed(tuple(max(0, a - b) for a, b in zip(left, way, strict=True))) for way in able if way[first]
        )

    return needed(tuple(asked.values()))


@settings(deadline=None)
@given(st.dictionaries(st.integers(150, 1000), st.integers(1, 6), min_size=1, max_size=4))
def test_prices_are_the_best_lower_bound(asked: dict[int, int]) -> None:
    prices = card_prices(asked)
    assert set(prices) == set(asked)
    sizes = list(asked)
    assert all(price >= 0 for price in prices.values())
    for way in ways(sizes):
        assert sum(n * prices[size] for n, size in zip(way, sizes, strict=True)) <= 1000 + 0.01
    bound = sum(prices[size] * times for size, times in asked.items()) / 1000
    # No lower bound by prices is better than another that holds: that of sizes, and of one half each.
    assert bound >= sum(size * times for size, times in asked.items()) / 1000 - 1e-6
    assert bound >= sum(times / (1000 // size) for size, times in asked.items() if size > 500) - 1e-6
    for size, times in asked.items():
        assert bound >= times / (1000 // size) - 1e-6
    # The rounding of the relaxed problem costs at most one card for each size that is cut.
    if sum(asked.values()) <= 10:
        assert cards_needed(asked) - len(asked) <= bound <= cards_needed(asked) + 1e-6


@pytest.mark.parametrize(
    ("asked", "prices"),
    [
        ({}, {}),
        ({470: 10}, {470: 500}),
        ({810: 10, 190: 1}, {810: 1000, 190: 0}),
        ({810: 1, 190: 10}, {810: 800, 190: 200}),
        ({650: 5, 320: 9, 1000: 3}, {650: 2000 / 3, 320: 1000 / 3, 1000: 1000}),
        ({333: 1}, {333: 1000 / 3}),
    ],
)
def test_known_prices(asked: dict[int, int], prices: dict[int, float]) -> None:
    assert card_prices(asked) == pytest.approx(prices, abs=0.01)


def test_many_sizes_are_priced() -> None:
    prices = card_prices({size: size % 7 + 1 for size in range(5, 1000, 17)})
    assert list(prices) == sorted(prices)
    # Never exactly in order, but what is larger by half costs no less.
    assert all(prices[a] <= prices[b] + 0.01 for a in prices for b in prices if a <= b)

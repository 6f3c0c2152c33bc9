"""What a share of a card is worth when shares of all sizes have to be cut from whole cards with little waste.

The cutting-stock problem: the fewest cards from which all that is asked for can be cut. Its dual prices say what part
of a card each size really costs: where three quarters of all shares are so large that nothing that is asked for fits
beside them, they cost a whole card, and what is left beside them is worth nothing. Solved by column generation
(Gilmore and Gomory, 1961): a simplex basis of ways to cut a card, to which the best further way is added, a knapsack.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pod_scheduling.domain.placement.tasks import WHOLE

_ENOUGH = 1e-6
"""A way to cut a card that is worth so little more than the card is not worth adding."""

_ROUNDS = 2_000


def card_prices(asked: Mapping[int, float]) -> dict[int, float]:
    """The price of each size (1-1000) in thousandths of a card, when so many shares of each size are asked for.

    No way to cut a card is worth more than 1000, and together the prices say how many cards are needed.
    """
    sizes = sorted(size for size, times in asked.items() if times > 0)
    if not sizes:
        return {}
    demand = np.array([asked[size] for size in sizes], np.float64)
    ways = np.diag([WHOLE // size for size in sizes]).astype(np.float64)
    costs = np.ones(len(sizes))
    prices = np.linalg.solve(ways.T, costs).astype(np.float64)
    for _ in range(_ROUNDS):
        # Prices below nothing count as nothing. When no way is worth more than a card then, nothing is better: those
        # prices hold for all ways, so that no fewer cards will do, and they say at least as many as `ways` need.
        way = _best_way(sizes, prices)
        if float(way @ prices) <= 1 + _ENOUGH:
            break
        used = np.linalg.solve(ways, demand)
        change = np.linalg.solve(ways, way)
        limits = np.where(change > 1e-9, np.maximum(used, 0) / np.maximum(change, 1e-9), np.inf)
        leaving = int(np.argmin(limits))
        ways[:, leaving] = way
        prices = np.linalg.solve(ways.T, costs).astype(np.float64)
    return {size: WHOLE * max(0.0, float(price)) for size, price in zip(sizes, prices, strict=True)}


def _best_way(sizes: list[int], prices: NDArray[np.float64]) -> NDArray[np.float64]:
    """How many of each size to cut from a card so that the prices add up to the most."""
    best = np.zeros(WHOLE + 1)
    last = np.full(WHOLE + 1, -1)
    for position, (size, price) in enumerate(zip(sizes, prices.tolist(), strict=True)):
        if price <= 0:
            continue
        for start in range(size, WHOLE + 1, size):
            here = slice(start, min(start + size, WHOLE + 1))
            with_it = best[start - size : here.stop - size] + price
            better = with_it > best[here] + 1e-12
            best[here] = np.where(better, with_it, best[here])
            last[here] = np.where(better, position, last[here])
    way = np.zeros(len(sizes))
    level = int(np.argmax(best))
    while last[level] >= 0 and level > 0:
        way[last[level]] += 1
        level -= sizes[last[level]]
    return way

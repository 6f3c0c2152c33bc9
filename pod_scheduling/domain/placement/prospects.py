"""What a node's free cards, processor time and memory could still earn, over samples of what may come next.

A share earns what its size costs by `cutting_stock`, a whole card 1000. Whether a card that is free can be used depends
on the processor time and the memory that are left beside it, and on who comes. So a number of futures are drawn from
the tasks that usually come, each with so many kinds of tasks on offer as a node may hope for; the worth of a node is
the mean over the futures of the most that it could earn. In each future that is bounded from above by Lagrange's way:
processor time and memory are sold at a price, each card earns the best it can at that price for itself, and the lowest
bound over several prices counts. So processor time that no card needs is worth nothing, and the last of it a lot.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pod_scheduling.domain.placement.card_sums import CardSums, Table
from pod_scheduling.domain.placement.cutting_stock import card_prices
from pod_scheduling.domain.placement.fleet import Amounts
from pod_scheduling.domain.placement.ranking import Scores
from pod_scheduling.domain.placement.tasks import WHOLE, Task

FUTURES = 8
"""How many futures are drawn."""

OFFERS = 96
"""How many tasks are on offer in a future; each can be taken any number of times."""

_QUANTILES = (0.1, 0.4, 0.7, 1.0)
"""The prices of processor time, and of memory, are these quantiles of what tasks earn with theirs."""

_SIZES = 48
"""So many sizes of shares get a price of their own, those that are asked for most: the time grows with the square."""

Rates = NDArray[np.float64]


class Prospects:
    """The worth of nodes when tasks like `arrived` go on arriving as often, on cards of these types."""

    def __init__(self, arrived: Mapping[Task, int], gpu_types: Sequence[str]) -> None:
        tasks = [task for task, times in arrived.items() if task.cards and times > 0]
        often = np.array([arrived[task] for task in tasks], np.float64)
        asked: dict[int, float] = {}
        for task, times in zip(tasks, often.tolist(), strict=True):
            asked[task.card_milli] = asked.get(task.card_milli, 0.0) + times * task.cards
        prices = size_prices(asked)
        earned = np.array([prices[task.card_milli] for task in tasks])
        self._rates = _rates(tasks, earned, often)
        futures = _futures(often)
        tables: dict[frozenset[int], Table] = {}
        by_type: dict[str, Table] = {}
        for kind in ("", *gpu_types):
            taken = frozenset(i for i, task in enumerate(tasks) if task.gpu_types is None or kind in task.gpu_types)
            if taken not in tables:
                offers = [[task_index for task_index in future if task_index in taken] for future in futures]
                tables[taken] = _table(offers, tasks, earned, self._rates)
            by_type[kind] = tables[taken]
        self.cards = CardSums(by_type)
        """What cards earn, by price and by future."""

    def worth(self, cpu: Amounts, memory: Amounts, sums: Table) -> Scores:
        """Thousandths of cards that nodes may earn with what is free on them."""
        sold = self._rates.astype(np.float32) @ np.stack([cpu, memory]).astype(np.float32)
        # By node comes last: that is how the smallest are found fast.
        bounds = sums.T.copy(order="C").reshape(len(self._rates), -1, len(cpu))
        bounds += sold[:, None]
        worth: Scores = bounds.min(axis=0).mean(axis=0, dtype=np.float64)
        return worth


def size_prices(asked: Mapping[int, float]) -> dict[int, float]:
    """The price of each size that is asked for; the less usual ones cost what the next larger usual one does."""
    most = sorted(asked, key=lambda size: -asked[size])[: _SIZES - 1]
    usual = sorted({*most, max(asked, default=WHOLE)})
    priced_as = {size: usual[bisect_left(usual, size)] for size in asked}
    together: dict[int, float] = {}
    for size, times in asked.items():
        together[priced_as[size]] = together.get(priced_as[size], 0.0) + times
    prices = card_prices(together)
    return {size: prices[priced_as[size]] for size in asked}


def _rates(tasks: Sequence[Task], earned: Rates, often: Rates) -> Rates:
    """Pairs of prices, of a thousandth of a core and of a MiB: none, then one of them alone."""
    rates = [(0.0, 0.0)]
    needs = np.array([(task.cpu_milli / task.cards, task.memory_mib / task.cards) for task in tasks]).reshape(-1, 2)
    for resource in range(2):
        some = needs[:, resource] > 0
        if some.any():
            rate = earned[some] / needs[some, resource]
            order = np.argsort(rate)
            so_far = np.cumsum(often[some][order])
            at = np.searchsorted(so_far, np.array(_QUANTILES) * so_far[-1])
            prices = np.unique(rate[order][np.minimum(at, len(order) - 1)]).tolist()
            rates.extend((price, 0.0) if resource == 0 else (0.0, price) for price in prices)
    return np.array(rates)


def _futures(often: Rates) -> list[list[int]]:
    """Which tasks are on offer in each future: drawn by how often they come, always the same draws."""
    draw = np.random.default_rng(0)
    chances = often / often.sum() if len(often) else often
    count = OFFERS if len(often) else 0
    return [
        np.unique(draw.choice(max(1, len(often)), count, p=chances if count else None)).tolist() for _ in range(FUTURES)
    ]


def _table(futures: Sequence[Sequence[int]], tasks: Sequence[Task], earned: Rates, rates: Rates) -> Table:
    """What a card earns at best, by price and future, and by how much of it is free."""
    table = np.zeros((len(rates), len(futures), WHOLE + 1), np.float32)
    for future, offers in enumerate(futures):
        best = table[:, future]
        for offer in offers:
            task = tasks[offer]
            needs = np.array([task.cpu_milli, task.memory_mib]) / task.cards
            profit = (earned[offer] - rates @ needs).astype(np.float32)[:, None]
            # Shares of one size can be taken again and again: each stretch of the table builds on the one before.
            for start in range(task.card_milli, WHOLE + 1, task.card_milli):
                stop = min(start + task.card_milli, WHOLE + 1)
                before = best[:, start - task.card_milli : stop - task.card_milli]
                np.maximum(best[:, start:stop], before + profit, out=best[:, start:stop])
    return np.ascontiguousarray(table.reshape(-1, WHOLE + 1).T)

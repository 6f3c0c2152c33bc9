"""The default: give away what is worth least to the usual tasks."""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from reservation_core.domain.placement.fleet import Fleet, Positions
from reservation_core.domain.placement.outcomes import Outcomes
from reservation_core.domain.placement.prospects import Prospects
from reservation_core.domain.placement.ranking import Scores
from reservation_core.domain.placement.tasks import WHOLE, Task
from reservation_core.domain.placement.worth import WorthRanking

_TOGETHER = 0.01
"""What whole cards on one node are worth more together, in parts of what they are worth: it decides between equals."""

_ASSUMED = Counter({Task(0, 0, 1, WHOLE // parts): 1 for parts in (1, 2, 4, 8)} | {Task(0, 0, n): 1 for n in (2, 4, 8)})
"""What is thought to come before anything has."""


class Priced(WorthRanking):
    """The worth of a node is what it may earn, and a little for whole cards that are together."""

    def __init__(self) -> None:
        super().__init__()
        self._prospects = Prospects(_ASSUMED, [])
        self._together = _together(_ASSUMED)

    def appraise(self, fleet: Fleet, arrived: Mapping[Task, int]) -> None:
        """Work out prices, and draw the futures."""
        if not any(task.cards for task in arrived):
            arrived = _ASSUMED
        prospects = Prospects(arrived, fleet.gpu_types)
        self._prospects, self._together = prospects, _together(arrived)

    def gains(self, fleet: Fleet, at: Positions, after: Outcomes) -> Scores:
        """Minus the thousandths of cards that nodes may earn less."""
        prospects = self._prospects
        now = prospects.worth(fleet.cpu_free[at], fleet.memory_free[at], prospects.cards.now(fleet, at))
        then = prospects.worth(after.cpu, after.memory, prospects.cards.then(fleet, at, after))
        gained = then - now[after.node]
        whole = fleet.whole_free[at][after.node]
        left = whole - after.cards * (after.before == WHOLE)
        for cards, worth in self._together.items():
            gained += worth * (left // cards - whole // cards)
        # Below a thousandth of a card, differences are noise; then the first node is filled first.
        gains: Scores = np.round(gained, 1)
        return gains


def _together(arrived: Mapping[Task, int]) -> dict[int, float]:
    """By how many whole cards: what it is worth to have so many on one node, in thousandths of a card."""
    total = sum(task.cards * task.card_milli * times for task, times in arrived.items())
    worth: dict[int, float] = {}
    for task, times in arrived.items():
        if task.cards > 1:
            part = task.cards * WHOLE * times / total
            worth[task.cards] = worth.get(task.cards, 0.0) + part * _TOGETHER * task.cards * WHOLE
    return worth

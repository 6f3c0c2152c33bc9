"""The default: give away what is worth least to the usual tasks."""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from pod_scheduling.domain.placement.cards_together import Together
from pod_scheduling.domain.placement.fleet import Fleet, Positions
from pod_scheduling.domain.placement.outcomes import Outcomes
from pod_scheduling.domain.placement.prospects import Prospects
from pod_scheduling.domain.placement.ranking import Scores
from pod_scheduling.domain.placement.tasks import WHOLE, Task
from pod_scheduling.domain.placement.worth_ranking import WorthRanking

_TOGETHER = 0.01
"""What whole cards on one node are worth more together, in parts of what they are worth: it decides between equals."""

_TYPE_PRICE = 0.02
"""What a card is dearer of a type that others can't do without, in parts of a card, if they would take all of them."""

_ASSUMED = Counter({Task(0, 0, 1, WHOLE // parts): 1 for parts in (1, 2, 4, 8)} | {Task(0, 0, n): 1 for n in (2, 4, 8)})
"""The pods that are assumed to come until some have come."""


class Priced(WorthRanking):
    """The worth of a node is what it may earn, and a little for whole cards that are together."""

    def __init__(self) -> None:
        super().__init__()
        self._prospects = Prospects(_ASSUMED, [])
        self._together = Together(_ASSUMED)
        self._wanted: dict[str, float] = {}

    def appraise(self, fleet: Fleet, arrived: Mapping[Task, int]) -> None:
        """Work out prices, and draw the futures."""
        if not any(task.cards for task in arrived):
            arrived = _ASSUMED
        prospects = Prospects(arrived, fleet.gpu_types)
        self._prospects, self._together, self._wanted = prospects, Together(arrived), _wanted(arrived, fleet)

    def gains(self, fleet: Fleet, at: Positions, after: Outcomes) -> Scores:
        """Minus the thousandths of cards that nodes may earn less."""
        prospects = self._prospects
        cards = prospects.cards.now(fleet, at)
        now = prospects.worth(fleet.cpu_free[at], fleet.memory_free[at], cards)
        then = prospects.worth(after.cpu, after.memory, prospects.cards.then(fleet, at, after, cards))
        gained = then - now[after.node]
        whole = fleet.whole_free[at]
        together = self._together.worth(whole, fleet.cpu_free[at], fleet.memory_free[at])
        left = whole[after.node] - after.cards * (after.before == WHOLE)
        gained += _TOGETHER * (self._together.worth(left, after.cpu, after.memory) - together[after.node])
        wanted = np.array([self._wanted.get(gpu_type, 0.0) for gpu_type in fleet.gpu_types])
        gained -= (after.cards * _TYPE_PRICE * wanted)[fleet.gpu_type[at]][after.node] * (after.before - after.after)
        # Below a thousandth of a card, differences are noise; then the first node is filled first.
        gains: Scores = np.round(gained, 1)
        return gains


def _wanted(arrived: Mapping[Task, int], fleet: Fleet) -> dict[str, float]:
    """By type of card: how many of those who come for its cards can't take others, in parts of its cards.

    That is worked out as if as much were asked for as there is, and everybody spread over all the types that they take.
    """
    there = {kind: int(fleet.cards[fleet.gpu_type == gpu_type].sum()) for gpu_type, kind in enumerate(fleet.gpu_types)}
    asked = sum(task.cards * task.card_milli * times for task, times in arrived.items())
    wanted = dict.fromkeys(there, 0.0)
    for task, times in arrived.items():
        if task.cards and task.gpu_types is not None:
            able = [kind for kind in there if kind in task.gpu_types]
            some = sum(there[kind] for kind in able)
            for kind in able:
                wanted[kind] += task.cards * task.card_milli * times / asked * sum(there.values()) / max(1, some)
    return {kind: min(1.0, part) for kind, part in wanted.items()}

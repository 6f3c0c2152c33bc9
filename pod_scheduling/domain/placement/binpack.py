"""Best fit: the node with the least left afterwards, and the fullest card."""

import numpy as np
from numpy.typing import NDArray

from pod_scheduling.domain.placement.fleet import Fleet, Positions
from pod_scheduling.domain.placement.ranking import Ranking, Scores
from pod_scheduling.domain.placement.tasks import Task


class Binpack(Ranking):
    """Remaining processor time and cards count alike, each against the largest node's."""

    def scores(self, fleet: Fleet, _task: Task, positions: Positions, /) -> Scores:
        """Minus what is left, in parts of the largest node. The task takes the same everywhere, so it isn't counted."""
        return -emptiness(fleet, positions)

    def share_scores(self, fleet: Fleet, _task: Task, position: int, cards: NDArray[np.intp], /) -> Scores:
        """The card with the least free is best."""
        free: Scores = fleet.milli_free[position, cards].astype(np.float64)
        return -free


def emptiness(fleet: Fleet, positions: Positions) -> Scores:
    """How much is free on these nodes: the mean of processor time and cards, in parts of the most that a node has."""
    cpu = fleet.cpu_free[positions] / max(1, int(fleet.cpu.max(initial=0)))
    cards = fleet.milli_free[positions].sum(axis=1) / (1000 * max(1, int(fleet.cards.max(initial=0))))
    mean: Scores = (cpu + cards) / 2
    return mean

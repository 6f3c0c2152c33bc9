"""The emptiest node, and the emptiest card."""

import numpy as np
from numpy.typing import NDArray

from pod_scheduling.domain.placement.binpack import emptiness
from pod_scheduling.domain.placement.fleet import Fleet, Positions
from pod_scheduling.domain.placement.ranking import Ranking, Scores
from pod_scheduling.domain.placement.tasks import Task


class Spread(Ranking):
    """Free processor time and free cards count alike."""

    def scores(self, fleet: Fleet, _task: Task, positions: Positions, /) -> Scores:
        """Free capacity, in parts of the largest node."""
        return emptiness(fleet, positions)

    def share_scores(self, fleet: Fleet, _task: Task, position: int, cards: NDArray[np.intp], /) -> Scores:
        """The card with the most free is best."""
        free: Scores = fleet.milli_free[position, cards].astype(np.float64)
        return free

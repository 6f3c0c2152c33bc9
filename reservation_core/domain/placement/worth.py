"""Policies that know what it is worth to have something free on a node, and give away what is worth least."""

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from reservation_core.domain.placement.fleet import Amounts, Fleet, Positions
from reservation_core.domain.placement.outcomes import outcomes
from reservation_core.domain.placement.ranking import Ranking, Scores
from reservation_core.domain.placement.tasks import Task


class WorthRanking(Ranking):
    """The best node for a task is the one that loses the least worth by taking it."""

    @abstractmethod
    def worth(self, fleet: Fleet, at: Positions, cpu: Amounts, memory: Amounts, levels: Amounts, /) -> Scores:
        """What it is worth that nodes at these positions have so much free: `levels` are thousandths by card."""

    def scores(self, fleet: Fleet, task: Task, positions: Positions, /) -> Scores:
        """Minus the worth that is lost, on the best card."""
        after = outcomes(fleet, task, positions)
        left = self.worth(fleet, positions[after.node], after.cpu, after.memory, after.levels)
        return after.best_by_node(left, len(positions)) - self._now(fleet, positions)

    def share_scores(self, fleet: Fleet, task: Task, position: int, cards: NDArray[np.intp], /) -> Scores:
        """Minus the worth that is lost, by card."""
        at = np.array([position])
        after = outcomes(fleet, task, at)
        left = self.worth(fleet, at[after.node], after.cpu, after.memory, after.levels) - self._now(fleet, at)
        by_level = dict(zip(fleet.milli_free[position, after.card].tolist(), left.tolist(), strict=True))
        return np.array([by_level[level] for level in fleet.milli_free[position, cards].tolist()])

    def _now(self, fleet: Fleet, at: Positions) -> Scores:
        return self.worth(fleet, at, fleet.cpu_free[at], fleet.memory_free[at], fleet.milli_free[at])

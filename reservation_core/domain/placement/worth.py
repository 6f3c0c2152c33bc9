"""Policies that know what it is worth to have something free on a node, and give away what is worth least."""

from abc import abstractmethod
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reservation_core.domain.placement.fleet import Amounts, Fleet, Positions
from reservation_core.domain.placement.outcomes import outcomes
from reservation_core.domain.placement.ranking import Ranking, Scores
from reservation_core.domain.placement.tasks import Task

_REMEMBERED_TASKS = 256
"""For how many kinds of tasks the scores of all nodes are remembered: with 1,213 nodes that is 5 MB."""


class WorthRanking(Ranking):
    """The best node for a task is the one that loses the least worth by taking it.

    A node is looked at again only when it has changed since a task of the same kind came last.
    """

    def __init__(self) -> None:
        self._remembered: OrderedDict[Task, _Remembered] = OrderedDict()
        self._fleet: Fleet | None = None

    @abstractmethod
    def worth(self, fleet: Fleet, at: Positions, cpu: Amounts, memory: Amounts, levels: Amounts, /) -> Scores:
        """What it is worth that nodes at these positions have so much free: `levels` are thousandths by card."""

    def graded(self, gained: Scores) -> Scores:
        """The score for a gain of worth, which is mostly a loss and so below zero."""
        return gained

    def forget(self) -> None:
        """The worth of things has changed."""
        self._remembered.clear()

    def scores(self, fleet: Fleet, task: Task, positions: Positions, /) -> Scores:
        """Minus the worth that is lost, on the best card."""
        known = self._recall(fleet, task)
        stale = positions[known.changes[positions] != fleet.changes[positions]]
        if len(stale):
            after = outcomes(fleet, task, stale)
            left = self.worth(fleet, stale[after.node], after.cpu, after.memory, after.levels)
            known.scores[stale] = self.graded(after.best_by_node(left, len(stale)) - self._now(fleet, stale))
            known.changes[stale] = fleet.changes[stale]
        scores: Scores = known.scores[positions]
        return scores

    def share_scores(self, fleet: Fleet, task: Task, position: int, cards: NDArray[np.intp], /) -> Scores:
        """Minus the worth that is lost, by card."""
        at = np.array([position])
        after = outcomes(fleet, task, at)
        left = self.worth(fleet, at[after.node], after.cpu, after.memory, after.levels)
        gained = self.graded(left - self._now(fleet, at))
        by_level = dict(zip(fleet.milli_free[position, after.card].tolist(), gained.tolist(), strict=True))
        return np.array([by_level[level] for level in fleet.milli_free[position, cards].tolist()])

    def _now(self, fleet: Fleet, at: Positions) -> Scores:
        return self.worth(fleet, at, fleet.cpu_free[at], fleet.memory_free[at], fleet.milli_free[at])

    def _recall(self, fleet: Fleet, task: Task) -> "_Remembered":
        if self._fleet is not fleet:
            self._fleet = fleet
            self.forget()
        known = self._remembered.get(task)
        if known is None or len(known.changes) != len(fleet.changes):
            known = self._remembered[task] = _Remembered(np.zeros(len(fleet.changes)), np.zeros_like(fleet.changes))
            if len(self._remembered) > _REMEMBERED_TASKS:
                self._remembered.popitem(last=False)
        self._remembered.move_to_end(task)
        return known


@dataclass(frozen=True, slots=True)
class _Remembered:
    """The scores of nodes by position, as they were when the node had changed so often."""

    scores: Scores
    changes: Amounts

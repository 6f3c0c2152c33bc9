"""Policies that know what it is worth to have something free on a node, and give away what is worth least."""

from abc import abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pod_scheduling.domain.placement.fleet import Amounts, Fleet, Positions, State
from pod_scheduling.domain.placement.outcomes import Outcomes, outcomes
from pod_scheduling.domain.placement.ranking import Ranking, Scores
from pod_scheduling.domain.placement.tasks import Task

_REMEMBERED_TASKS = 256
"""For how many kinds of tasks the scores of all nodes are remembered: with 1,213 nodes that is 5 MB."""

_REMEMBERED_STATES = 128
"""And for how many states of nodes."""

_FEW = 8
"""Of so many nodes the states are looked at; more are faster worked out together."""

_LEARNT_TASKS = 4096
"""How many kinds of tasks are counted. When there are more, all counts are halved, and what was rare is forgotten."""


class WorthRanking(Ranking):
    """The best node for a task is the one that loses the least worth by taking it.

    A node is looked at again only when it has changed since a task of the same kind came last. `reconsider` may run in
    another thread than the rest, on a fleet of its own.
    """

    def __init__(self) -> None:
        self.arrived: Counter[Task] = Counter()
        self._remembered: OrderedDict[Task, _Remembered] = OrderedDict()
        self._fleet: Fleet | None = None

    @abstractmethod
    def gains(self, fleet: Fleet, at: Positions, after: Outcomes) -> Scores:
        """By how much the worth of a node grows with each outcome; mostly it shrinks, so that this is below zero."""

    @abstractmethod
    def appraise(self, fleet: Fleet, arrived: Mapping[Task, int]) -> None:
        """Work out what things are worth when such tasks arrive so often."""

    def learn(self, task: Task, times: int = 1, /) -> None:
        """Count tasks that have arrived."""
        self.arrived[task] += times
        if len(self.arrived) > _LEARNT_TASKS:
            self.arrived = Counter(
                {arrived_task: count // 2 for arrived_task, count in self.arrived.items() if count > 1}
            )

    def reconsider(self, fleet: Fleet, /) -> None:
        """Work out anew what things are worth."""
        self.appraise(fleet, dict(self.arrived))
        self._remembered = OrderedDict()

    def scores(self, fleet: Fleet, task: Task, positions: Positions, /) -> Scores:
        """Minus the worth that is lost, on the best card."""
        known = self._recall(fleet, task)
        stale = positions[known.changes[positions] != fleet.changes[positions]]
        if len(stale):
            known.scores[stale] = self._anew(fleet, task, stale, known.by_state)
            known.changes[stale] = fleet.changes[stale]
        scores: Scores = known.scores[positions]
        return scores

    def _anew(self, fleet: Fleet, task: Task, at: Positions, by_state: dict[State, float]) -> Scores:
        """Nodes are filled one after the other, so of a few that changed most states were there before, elsewhere."""
        if len(at) > _FEW:
            return self._worked_out(fleet, task, at)
        states = [fleet.state_at(position) for position in at.tolist()]
        unseen = [number for number, state in enumerate(states) if state not in by_state]
        if unseen:
            if len(by_state) >= _REMEMBERED_STATES:
                by_state.clear()
                unseen = [*range(len(states))]
            found = self._worked_out(fleet, task, at[unseen]).tolist()
            by_state.update(zip((states[number] for number in unseen), found, strict=True))
        return np.array([by_state[state] for state in states])

    def _worked_out(self, fleet: Fleet, task: Task, at: Positions) -> Scores:
        after = outcomes(fleet, task, at)
        return after.best_by_node(self.gains(fleet, at, after), len(at))

    def share_scores(self, fleet: Fleet, task: Task, position: int, cards: NDArray[np.intp], /) -> Scores:
        """Minus the worth that is lost, by card."""
        at = np.array([position])
        after = outcomes(fleet, task, at)
        by_level = dict(zip(after.before.tolist(), self.gains(fleet, at, after).tolist(), strict=True))
        return np.array([by_level[level] for level in fleet.milli_free[position, cards].tolist()])

    def _recall(self, fleet: Fleet, task: Task) -> "_Remembered":
        if self._fleet is not fleet:
            self._fleet = fleet
            self._remembered = OrderedDict()
        remembered = self._remembered
        known = remembered.get(task)
        if known is None or len(known.changes) != len(fleet.changes):
            known = remembered[task] = _Remembered(np.zeros(len(fleet.changes)), np.zeros_like(fleet.changes))
            if len(remembered) > _REMEMBERED_TASKS:
                remembered.popitem(last=False)
        remembered.move_to_end(task)
        return known


@dataclass(frozen=True, slots=True)
class _Remembered:
    """The scores of nodes by position, as they were when the node had changed so often; and by state."""

    scores: Scores
    changes: Amounts
    by_state: dict[State, float] = field(default_factory=dict)

"""Fragmentation gradient descent: put each task where it makes the fewest cards useless to the usual tasks.

The measure is that of Weng et al., «Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
Gradient Descent» (USENIX ATC 2023): what is free on a node is a fragment to a usual task if the task does not fit
there; if it does, the cards with less free than it asks for are. A node's fragmentation is the mean over the usual
tasks by how often they come. Memory is not part of the measure.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pod_scheduling.domain.placement.card_sums import CardSums, Table
from pod_scheduling.domain.placement.fleet import Amounts, Fleet, Positions
from pod_scheduling.domain.placement.outcomes import Outcomes
from pod_scheduling.domain.placement.ranking import Scores
from pod_scheduling.domain.placement.tasks import WHOLE, Task
from pod_scheduling.domain.placement.worth_ranking import WorthRanking

USUAL_PART = 0.95
"""The most frequent kinds of tasks count, until they are this part of all."""

_MOST = 256
"""No more kinds than these: the time of a look grows with them."""


class FragmentationDescent(WorthRanking):
    """The worth of a node is minus its fragmentation, in thousandths of cards.

    As published, a gain is graded from 0 to 100, and the first node wins among equals: that is part of how well it
    does, since small differences are noise and filling nodes one after the other is not.
    """

    def __init__(self) -> None:
        super().__init__()
        self._measure = _Measure([], [])

    def appraise(self, fleet: Fleet, arrived: Mapping[Task, int]) -> None:
        """Take those that have arrived most as the usual ones."""
        self._measure = _Measure(usual_tasks(arrived), fleet.gpu_types)

    def gains(self, fleet: Fleet, at: Positions, after: Outcomes) -> Scores:
        """Grades: a fragment more or less of a whole card makes 23."""
        measure = self._measure
        cards = measure.cards.now(fleet, at)
        now = measure.fragments(fleet.cpu_free[at], cards)
        then = measure.fragments(after.cpu, measure.cards.then(fleet, at, after, cards))
        # The rest of a difference of nothing must not be below nothing.
        grades: Scores = np.floor(100 / (1 + np.exp(-np.round(now[after.node] - then, 6) / WHOLE)))
        return grades


def usual_tasks(arrived: Mapping[Task, int]) -> list[tuple[Task, float]]:
    """The most frequent kinds of tasks that together are `USUAL_PART` of all, and which part of them each is."""
    enough = USUAL_PART * sum(arrived.values())
    usual: list[tuple[Task, int]] = []
    so_far = 0
    for task, times in sorted(arrived.items(), key=lambda counted: -counted[1])[:_MOST]:
        if so_far >= enough:
            break
        usual.append((task, times))
        so_far += times
    return [(task, times / so_far) for task, times in usual]


class _Measure:
    """Fragmentation, worked out for all nodes at once: tasks that differ only in processor time are one group."""

    def __init__(self, usual: list[tuple[Task, float]], gpu_types: list[str]) -> None:
        groups: dict[tuple[int, int, frozenset[str] | None], int] = {}
        on_cards = [(task, part) for task, part in usual if task.cards]
        for task, _ in on_cards:
            groups.setdefault((task.cards, task.card_milli, task.gpu_types), len(groups))
        self._cpu = np.unique([task.cpu_milli for task, _ in on_cards]).astype(np.int64)
        fit = np.zeros((len(self._cpu) + 1, len(groups)))
        for task, part in on_cards:
            group = groups[task.cards, task.card_milli, task.gpu_types]
            fit[int(np.searchsorted(self._cpu, task.cpu_milli)) + 1, group] += part
        self._fit: NDArray[np.float64] = np.cumsum(fit, axis=0).T
        """By group, and how many of `_cpu` are there: what part of all tasks has no more need of processor time."""
        self._wanted = np.array([[cards] for cards, _, _ in groups], np.int64).reshape(-1, 1)
        self.cards = CardSums({kind: _table(list(groups), kind) for kind in ("", *gpu_types)})

    def fragments(self, cpu: Amounts, sums: Table) -> Scores:
        """Thousandths of cards that are fragments, on nodes with so much processor time free and these cards."""
        groups = len(self._wanted)
        able, short, free = sums.T[:groups], sums.T[groups:-1], sums[:, -1]
        fits = self._fit[:, np.searchsorted(self._cpu, cpu, side="right")]
        useful = (np.where(able >= self._wanted, fits, 0) * (free - short)).sum(axis=0)
        fragments: Scores = free - useful
        return fragments


def _table(groups: list[tuple[int, int, frozenset[str] | None]], gpu_type: str) -> Table:
    """By what is free on a card: for each group whether it fits and what is too little for it; and what is free."""
    wanted = np.array([milli for _, milli, _ in groups], np.int64)[:, None]
    taken = np.array([types is None or gpu_type in types for _, _, types in groups], bool)[:, None]
    level = np.arange(WHOLE + 1)[None]
    return np.vstack([(level >= wanted) & taken, np.where(level < wanted, level, 0), level]).astype(np.float32).T

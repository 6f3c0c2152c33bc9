"""Fragmentation gradient descent: put each task where it makes the fewest cards useless to the usual tasks.

The measure is that of Weng et al., «Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
Gradient Descent» (USENIX ATC 2023): what is free on a node is a fragment to a usual task if the task does not fit
there; if it does, the cards with less free than it asks for are. A node's fragmentation is the mean over the usual
tasks by how often they come. Memory is not part of the measure.
"""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from reservation_core.domain.placement.fleet import Amounts, Fleet, Positions
from reservation_core.domain.placement.ranking import Scores
from reservation_core.domain.placement.tasks import WHOLE, Task
from reservation_core.domain.placement.worth import WorthRanking

USUAL_PART = 0.95
"""The most frequent kinds of tasks count, until they are this part of all."""


class FragmentationDescent(WorthRanking):
    """The worth of a node is minus its fragmentation, in thousandths of cards.

    As published, a gain is graded from 0 to 100, and the first node by name wins among equals: that is part of how
    well it does, since small differences are noise and filling nodes one after the other is not.
    """

    def __init__(self) -> None:
        super().__init__()
        self._arrived: Counter[Task] = Counter()
        self._measure = _Measure(usual_tasks({}))

    def learn(self, task: Task, times: int = 1, /) -> None:
        """So many tasks like this have arrived."""
        self._arrived[task] += times

    def reconsider(self, _fleet: Fleet, /) -> None:
        """Take those that have arrived most as the usual ones."""
        self._measure = _Measure(usual_tasks(dict(self._arrived)))
        self.forget()

    def graded(self, gained: Scores) -> Scores:
        """Whole grades: a card more or less of fragments makes 23."""
        # What is left of a difference of nothing must not be below nothing.
        return np.floor(100 / (1 + np.exp(-np.round(gained, 6) / WHOLE)))

    def worth(self, fleet: Fleet, at: Positions, cpu: Amounts, _memory: Amounts, levels: Amounts, /) -> Scores:
        """Minus the fragmentation."""
        return -self._measure.fragments(cpu, levels, [fleet.gpu_types[each] for each in fleet.gpu_type[at]])


def usual_tasks(arrived: Mapping[Task, int]) -> list[tuple[Task, float]]:
    """The most frequent kinds of tasks that together are `USUAL_PART` of all, and which part of them each is."""
    enough = USUAL_PART * sum(arrived.values())
    usual: list[tuple[Task, int]] = []
    so_far = 0
    for task, times in sorted(arrived.items(), key=lambda each: -each[1]):
        if so_far >= enough:
            break
        usual.append((task, times))
        so_far += times
    return [(task, times / so_far) for task, times in usual]


class _Measure:
    """Fragmentation, worked out for all nodes at once: tasks that differ only in processor time are one group."""

    def __init__(self, usual: list[tuple[Task, float]]) -> None:
        groups: dict[tuple[int, int, frozenset[str] | None], int] = {}
        on_cards = [(task, part) for task, part in usual if task.cards]
        for task, _ in on_cards:
            groups.setdefault((task.cards, task.card_milli, task.gpu_types), len(groups))
        self._groups = list(groups)
        self._cpu = np.unique([task.cpu_milli for task, _ in on_cards]).astype(np.int64)
        fit = np.zeros((len(self._cpu) + 1, len(groups)))
        for task, part in on_cards:
            fit[
                int(np.searchsorted(self._cpu, task.cpu_milli)) + 1, groups[task.cards, task.card_milli, task.gpu_types]
            ] += part
        self._fit = np.cumsum(fit, axis=0)
        """By how many of `_cpu` are there, and group: what part of all tasks has no more need of processor time."""
        wanted = np.array([milli for _, milli, _ in self._groups], np.int64)
        self._wanted_cards = np.array([cards for cards, _, _ in self._groups], np.int64)
        level = np.arange(WHOLE + 1)[:, None]
        self._hosts = (level >= wanted).astype(np.int64)
        self._short = np.where(level < wanted, level, 0)

    def fragments(self, cpu: Amounts, levels: Amounts, gpu_types: list[str]) -> Scores:
        """Thousandths of cards that are fragments, on nodes that have so much free and these types."""
        total = levels.sum(axis=1)
        hosts = np.zeros((len(cpu), len(self._groups)), np.int64)
        short = np.zeros_like(hosts)
        for card in range(levels.shape[1]):
            hosts += self._hosts[levels[:, card]]
            short += self._short[levels[:, card]]
        fits = self._fit[np.searchsorted(self._cpu, cpu, side="right")]
        fits = np.where(hosts >= self._wanted_cards, fits, 0)
        if any(types is not None for _, _, types in self._groups):
            rows = {each: [types is None or each in types for _, _, types in self._groups] for each in set(gpu_types)}
            fits = fits * np.array([rows[each] for each in gpu_types]).reshape(fits.shape)
        useful: Scores = (fits * (total[:, None] - short)).sum(axis=1)
        fragments: Scores = total - useful
        return fragments

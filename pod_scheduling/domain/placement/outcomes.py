"""What nodes would be left with, for each way in which a task could be put on them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pod_scheduling.domain.placement.fleet import Amounts, Fleet, Positions
from pod_scheduling.domain.placement.tasks import WHOLE, Task


@dataclass(frozen=True, slots=True)
class Outcomes:
    """One row for each node and each different way to put a task there; rows of a node are neighbours.

    `node` says which of the positions asked about a row belongs to. On `cards` cards (the same number everywhere) the
    thousandths that are free go from `before` to `after`; `card` is that card if it is one of which a share is taken,
    else -1. `cpu` and `memory` are what is left then. Where less is free than the task asks for, which is somebody
    else's business, nothing is left.
    """

    node: NDArray[np.intp]
    card: NDArray[np.intp]
    cards: int
    before: Amounts
    after: Amounts
    cpu: Amounts
    memory: Amounts

    def best_by_node(self, worth: NDArray[np.float64], nodes: int) -> NDArray[np.float64]:
        """The largest `worth` of a row, for each node; each must have a row."""
        if len(worth) == nodes:
            return worth
        starts = np.searchsorted(self.node, np.arange(nodes))
        best: NDArray[np.float64] = np.maximum.reduceat(worth, starts)
        return best


def outcomes(fleet: Fleet, task: Task, at: Positions) -> Outcomes:
    """The outcomes for nodes that have the cards a task asks for."""
    node: NDArray[np.intp] = np.arange(len(at))
    card: NDArray[np.intp] = np.full(len(at), -1, np.intp)
    if task.cards and task.card_milli < WHOLE:
        levels = fleet.milli_free[at]
        able = fleet.cards_for_share(task, at)
        # Cards with the same amount free come to the same, so one of them is enough.
        for number in range(1, levels.shape[1]):
            able[:, number] &= ~((levels[:, :number] == levels[:, number : number + 1]) & able[:, :number]).any(axis=1)
        node, card = np.nonzero(able)
        before = levels[node, card]
        after = before - task.card_milli
    else:
        before = np.full(len(at), WHOLE, np.int64)
        after = np.zeros(len(at), np.int64)
    there = at[node]
    cpu = np.maximum(fleet.cpu_free[there] - task.cpu_milli, 0)
    memory = np.maximum(fleet.memory_free[there] - task.memory_mib, 0)
    return Outcomes(node, card, task.cards, before, after, cpu, memory)

"""What it is worth that whole cards which are free are on one node, for tasks that ask for several."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pod_scheduling.domain.placement.fleet import Amounts
from pod_scheduling.domain.placement.ranking import Scores
from pod_scheduling.domain.placement.tasks import WHOLE, Task

_KINDS = 16
"""So many kinds of tasks count, those that ask for most."""


class Together:
    """The worth of a node is how many of each kind of task with several cards it has room for, were it alone.

    Each counts for the thousandths of cards that it asks for, times the part of all that is asked for that its kind is.
    """

    def __init__(self, arrived: Mapping[Task, int]) -> None:
        total = sum(task.cards * task.card_milli * times for task, times in arrived.items())
        several = [(task, task.cards * WHOLE * times / total) for task, times in arrived.items() if task.cards > 1]
        most = sorted(several, key=lambda weighted: -weighted[1])[:_KINDS]
        self._needs = np.array([(t.cards, max(1, t.cpu_milli), max(1, t.memory_mib)) for t, _ in most]).reshape(-1, 3)
        self._counts: NDArray[np.float64] = np.array([part * task.cards * WHOLE for task, part in most])

    def worth(self, whole: Amounts, cpu: Amounts, memory: Amounts) -> Scores:
        """For nodes with so many whole cards, thousandths of cores and MiB free."""
        room = whole[:, None] // self._needs[:, 0]
        np.minimum(room, cpu[:, None] // self._needs[:, 1], out=room)
        np.minimum(room, memory[:, None] // self._needs[:, 2], out=room)
        worth: Scores = room @ self._counts
        return worth

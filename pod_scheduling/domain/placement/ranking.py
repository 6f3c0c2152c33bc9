"""The interface of placement policies: how good each node is for a task, and which of its cards to give."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pod_scheduling.domain.placement.fleet import Fleet, Positions
from pod_scheduling.domain.placement.tasks import WHOLE, Spot, Task
from reservation_core.domain.cards.card_links import best_gpus
from reservation_core.domain.cards.card_masks import bits

Scores = NDArray[np.float64]


class Ranking(ABC):
    """One policy. Reads the fleet, never changes it.

    `scores`, `cards` and `choose` are look-ups that take about a millisecond for a thousand nodes. `learn` is told what
    arrives; `reconsider` draws the conclusions, which may take longer, and changes nothing until they are drawn.
    """

    @abstractmethod
    def scores(self, fleet: Fleet, task: Task, positions: Positions, /) -> Scores:
        """How good these nodes are for a task, larger is better; all must have the cards that it asks for."""

    @abstractmethod
    def share_scores(self, fleet: Fleet, task: Task, position: int, cards: NDArray[np.intp], /) -> Scores:
        """How good these cards of a node are for a task that asks for a share, larger is better; each has room."""

    def cards(self, fleet: Fleet, task: Task, node: str) -> tuple[int, ...] | None:
        """Which cards of a node to give, ascending; none for a task that asks for none; None where there is no room."""
        position = fleet.position(node)
        if position is None or not fleet.has_cards(task, np.array([position])).all():
            return None
        if task.cards == 0:
            return ()
        if task.card_milli == WHOLE:
            return _whole_cards(fleet, position, task.cards)
        able = np.flatnonzero(fleet.cards_for_share(task, np.array([position]))[0])
        best = int(able[np.argmax(self.share_scores(fleet, task, position, able))])
        # Cards that nobody has anything of are the same to a policy; which of them is a matter of neighbours.
        return (best,) if fleet.milli_free[position, best] < WHOLE else _whole_cards(fleet, position, 1)

    def choose(
        self, fleet: Fleet, task: Task, nodes: Sequence[str] | None = None, *, cards_only: bool = False
    ) -> Spot | None:
        """The best spot of all, or of those on `nodes`; None where there is no room. The first of equals."""
        at = fleet.fitting(task, nodes, cards_only=cards_only)
        if not len(at):
            return None
        node = fleet.name_at(int(at[np.argmax(self.scores(fleet, task, at))]))
        cards = self.cards(fleet, task, node)
        return None if cards is None else Spot(node, cards)

    def learn(self, task: Task, times: int = 1, /) -> None:  # noqa: B027 - not all learn
        """Count tasks that have arrived. Cheap; nothing changes before `reconsider`."""

    def reconsider(self, fleet: Fleet, /) -> None:  # noqa: B027 - not all learn
        """Draw the conclusions from what was learnt, for a fleet like this. May take a second."""


def _whole_cards(fleet: Fleet, position: int, cards: int) -> tuple[int, ...]:
    shape = fleet.shapes[position]
    # Links that do not speak of all cards say nothing.
    links = shape.links if shape is not None and shape.links is not None and len(shape.links) == shape.cards else None
    free = sum(1 << int(card) for card in np.flatnonzero(fleet.milli_free[position] == WHOLE))
    return tuple(bit.bit_length() - 1 for bit in bits(best_gpus(links, free, cards)))

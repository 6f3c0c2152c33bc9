"""Sums over the cards of each node of something that depends on how much of a card is free."""

import numpy as np
from numpy.typing import NDArray

from reservation_core.domain.placement.fleet import Amounts, Fleet, Positions
from reservation_core.domain.placement.outcomes import Outcomes

Table = NDArray[np.float32]


class CardSums:
    """`tables[row_of_type[type], level]` is what a card with `level` thousandths free counts for, as a vector.

    What a full card counts for must be nothing, so that cards which a node does not have count for nothing.
    The sums are kept for one fleet, and worked out anew for nodes that have changed.
    """

    def __init__(self, tables: Table, row_of_type: dict[str, int]) -> None:
        self._tables = tables
        self._row_of_type = row_of_type
        self._fleet: Fleet | None = None
        self._sums: Table = np.zeros((0, tables.shape[2]), np.float32)
        self._changes: Amounts = np.zeros(0, np.int64)

    def now(self, fleet: Fleet, at: Positions) -> Table:
        """The sums for nodes as they are: one row each."""
        if self._fleet is not fleet or len(self._changes) != len(fleet.changes):
            self._fleet = fleet
            self._sums = np.zeros((len(fleet.changes), self._tables.shape[2]), np.float32)
            self._changes = np.zeros_like(fleet.changes)
        stale = at[self._changes[at] != fleet.changes[at]]
        if len(stale):
            rows = self._rows(fleet, stale)
            sums = np.zeros((len(stale), self._tables.shape[2]), np.float32)
            for card in range(fleet.milli_free.shape[1]):
                sums += self._tables[rows, fleet.milli_free[stale, card]]
            self._sums[stale] = sums
            self._changes[stale] = fleet.changes[stale]
        taken: Table = self._sums[at]
        return taken

    def then(self, fleet: Fleet, at: Positions, after: Outcomes) -> Table:
        """The sums for each outcome on nodes at these positions."""
        sums = self.now(fleet, at)
        if len(after.node) != len(at):
            sums = sums[after.node]
        if after.cards:
            rows = self._rows(fleet, at)[after.node]
            sums += after.cards * (self._tables[rows, after.after] - self._tables[rows, after.before])
        return sums

    def _rows(self, fleet: Fleet, at: Positions) -> NDArray[np.intp]:
        by_type = np.array([self._row_of_type.get(each, 0) for each in fleet.gpu_types], np.intp)
        rows: NDArray[np.intp] = by_type[fleet.gpu_type[at]]
        return rows

"""Sums over the cards of each node of something that depends on how much of a card is free."""

import numpy as np
from numpy.typing import NDArray

from pod_scheduling.domain.placement.fleet import Amounts, Fleet, Positions
from pod_scheduling.domain.placement.outcomes import Outcomes
from pod_scheduling.domain.placement.tasks import WHOLE

Table = NDArray[np.float32]


class CardSums:
    """`tables[type][level]` is what a card with `level` thousandths free counts for, as a vector; `tables[""]` for
    types that are not named.

    What a full card counts for must be nothing, so that cards which a node does not have count for nothing. The sums
    are kept for one fleet, and worked out anew for nodes that have changed. They come with a row for each node.
    """

    def __init__(self, tables: dict[str, Table]) -> None:
        different = {id(table): table for table in tables.values()}
        starts = {table_id: number * (WHOLE + 1) for number, table_id in enumerate(different)}
        self._start_of_type = {kind: starts[id(table)] for kind, table in tables.items()}
        self._table: Table = np.ascontiguousarray(np.vstack(list(different.values())))
        self._fleet: Fleet | None = None
        self._sums: Table = np.zeros((0, self._table.shape[1]), np.float32)
        self._changes: Amounts = np.zeros(0, np.int64)

    def now(self, fleet: Fleet, at: Positions) -> Table:
        """The sums for nodes as they are."""
        if self._fleet is not fleet or len(self._changes) != len(fleet.changes):
            self._fleet = fleet
            self._sums = np.zeros((len(fleet.changes), self._table.shape[1]), np.float32)
            self._changes = np.zeros_like(fleet.changes)
        stale = at[self._changes[at] != fleet.changes[at]]
        if len(stale):
            starts = self._starts(fleet, stale)
            sums = np.zeros((len(stale), self._table.shape[1]), np.float32)
            for card in range(fleet.milli_free.shape[1]):
                sums += self._table.take(starts + fleet.milli_free[stale, card], axis=0)
            self._sums[stale] = sums
            self._changes[stale] = fleet.changes[stale]
        return self._sums.take(at, axis=0)

    def then(self, fleet: Fleet, at: Positions, after: Outcomes, now: Table) -> Table:
        """The sums for each outcome on nodes at these positions, for which they are `now`."""
        sums = now.take(after.node, axis=0)
        if after.cards:
            starts = self._starts(fleet, at)[after.node]
            change = self._table.take(starts + after.after, axis=0)
            change -= self._table.take(starts + after.before, axis=0)
            sums += change if after.cards == 1 else after.cards * change
        return sums

    def _starts(self, fleet: Fleet, at: Positions) -> NDArray[np.intp]:
        unnamed = self._start_of_type[""]
        by_type = np.array([self._start_of_type.get(gpu_type, unnamed) for gpu_type in fleet.gpu_types], np.intp)
        starts: NDArray[np.intp] = by_type[fleet.gpu_type[at]]
        return starts

"""Positions in the fleet of the nodes in a question, cached: most questions name the same nodes again."""

from collections.abc import Sequence
from itertools import repeat

import numpy as np

from pod_scheduling.domain.placement.fleet import Fleet, Positions

UNKNOWN = -1
"""The position of a node that is not there."""


class AskedNodes:
    """The positions of the names that were asked about last; good until a node comes or goes."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._names: tuple[str, ...] | None = None
        self._layout = -1
        self._at: Positions = np.zeros(0, np.intp)

    def at(self, names: Sequence[str]) -> Positions:
        """The position of each, in their order. A remembered result is only ever of the very same tuple."""
        if names is self._names and self._layout == self._fleet.layout:
            return self._at
        at = np.fromiter(map(self._fleet.positions.get, names, repeat(UNKNOWN)), np.intp, len(names))
        if isinstance(names, tuple):
            self._names, self._layout, self._at = names, self._fleet.layout, at
        return at

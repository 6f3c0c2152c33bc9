"""The order in which a policy takes nodes of one type, by the number of their free GPUs.

Free GPUs are worth more the more of them typical jobs could use. Typical jobs are those that wait and those that run:
`Demand` counts their pieces of each size, where a piece is what a job asks for on one node.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from reservation_core.domain.cards.placement_policies import PlacementPolicy

Demand = Mapping[int, int]
"""The number of pieces by their number of GPUs."""


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """`counts` are the numbers of free GPUs that are enough for a piece, in the order of preference.

    `cost[count]` is the cost of a piece there: less is better, and comparable between types. Of equal costs the smaller
    count goes first.
    """

    counts: tuple[int, ...]
    cost: tuple[float, ...]


def node_order(policy: PlacementPolicy, gpus: int, largest: int, demand: Demand) -> NodeOrder:
    """The order for a piece of `gpus` GPUs where no node has more than `largest`."""
    demand = {size: pieces for size, pieces in demand.items() if size <= largest}
    cost = tuple(_cost(policy, gpus, free, demand) for free in range(largest + 1))
    return NodeOrder(tuple(sorted(range(gpus, largest + 1), key=lambda free: (cost[free], free))), cost)


def _cost(policy: PlacementPolicy, gpus: int, free: int, demand: Demand) -> float:
    left = free - gpus
    if left < 0:
        return 0.0
    match policy:
        case PlacementPolicy.BINPACK:
            return float(left)
        case PlacementPolicy.SPREAD:
            return -float(left)
        case PlacementPolicy.FGD:
            return (_fragments(left, demand) - _fragments(free, demand)) / max(sum(demand.values()), 1)
        case PlacementPolicy.PRICED:
            cards = sum(size * pieces for size, pieces in demand.items())
            return (_worth(free, demand) - _worth(left, demand)) / max(cards, 1)
        case _:
            assert_never(policy)


def _fragments(free: int, demand: Demand) -> int:
    """Free GPUs that the typical piece can't use: all of them, for larger pieces (see `fgd`)."""
    return free * sum(pieces for size, pieces in demand.items() if size > free)


def _worth(free: int, demand: Demand) -> int:
    """Free GPUs that pieces of each size could use alone, weighted by the GPUs demanded in that size.

    A remainder counts in part, since more GPUs may become free beside it: by the square of its share of a piece, so
    that a GPU of a nearly complete piece is worth more.
    """
    return sum(size * pieces * (free - free % size) + pieces * (free % size) ** 2 for size, pieces in demand.items())

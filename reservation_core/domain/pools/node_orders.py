"""In which order a policy takes nodes with whole cards of one type: by how many of a node's cards are free.

The more of a node's free cards the usual jobs could use, the more these are worth. The usual jobs are those that wait
and those that run: `Demand` says of them how many pieces of each size there are, where a piece is what a job asks for
on one node.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from reservation_core.domain.cards.placement_policies import PlacementPolicy

Demand = Mapping[int, int]
"""How many pieces are asked for, by their number of cards."""


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """`counts` are the numbers of free cards that are enough for a piece, those to be taken first in front.

    `cost[count]` is what a piece costs there: less is better, and comparable between types of cards. Of counts at which
    it costs the same, the smaller goes first.
    """

    counts: tuple[int, ...]
    cost: tuple[float, ...]


def node_order(policy: PlacementPolicy, gpus: int, largest: int, demand: Demand) -> NodeOrder:
    """The order for a piece of `gpus` cards where no node has more than `largest`."""
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
    """Free cards that the usual piece can't use: all of them, for those that are larger (see `fgd`)."""
    return free * sum(pieces for size, pieces in demand.items() if size > free)


def _worth(free: int, demand: Demand) -> int:
    """Free cards that pieces of each size could use if they came alone, by the cards asked for in that size.

    The rest counts in part, for the rest of a piece may come free beside it: by the square of how much of a piece it
    is, so that what lacks little is dearer by the card than what lacks much.
    """
    return sum(size * pieces * (free - free % size) + pieces * (free % size) ** 2 for size, pieces in demand.items())

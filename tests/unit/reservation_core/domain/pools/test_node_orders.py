"""Orders of nodes by how many of their cards are free, against what they are meant to leave."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.cards.placement_policies import PlacementPolicy
from reservation_core.domain.pools.node_orders import Demand, node_order

LARGEST = st.integers(1, 16)
DEMANDS = st.dictionaries(st.integers(1, 16), st.integers(1, 100), max_size=5)
ALL_SIZES: Demand = {1: 8, 2: 4, 4: 2, 8: 1}


def unusable(free: int, demand: Demand) -> float:
    """By the definition in the FGD paper for whole cards: the mean over all pieces of what each can't use."""
    pieces = [size for size, count in demand.items() for _ in range(count)]
    return sum(free if size > free else 0 for size in pieces) / max(len(pieces), 1)


def usable(free: int, demand: Demand) -> float:
    """How many of the free cards get used when pieces of one size come, the mean over all cards that are asked for.

    A rest too small for a piece is worth as much of a piece's cards as it is of a piece, each time by that part.
    """
    cards = [size for size, count in demand.items() for _ in range(count * size)]
    used = 0.0
    for size in cards:
        rest = free
        while rest >= size:
            rest -= size
            used += size
        used += rest * (rest / size)
    return used / max(len(cards), 1)


@given(st.sampled_from(PlacementPolicy), LARGEST, DEMANDS, st.data())
def test_each_number_of_free_cards_that_is_enough_comes_once_and_the_dearer_later(
    policy: PlacementPolicy, largest: int, demand: Demand, data: st.DataObject
) -> None:
    gpus = data.draw(st.integers(1, largest))
    order = node_order(policy, gpus, largest, demand)
    assert sorted(order.counts) == list(range(gpus, largest + 1))
    rated = [(order.cost[count], count) for count in order.counts]
    assert rated == sorted(rated)


@given(LARGEST, DEMANDS, st.data())
def test_what_a_piece_costs(largest: int, demand: Demand, data: st.DataObject) -> None:
    gpus = data.draw(st.integers(1, largest))
    able = {size: count for size, count in demand.items() if size <= largest}
    for free in range(gpus, largest + 1):
        left = free - gpus
        cost = {policy: node_order(policy, gpus, largest, demand).cost[free] for policy in PlacementPolicy}
        assert cost[PlacementPolicy.BINPACK] == left
        assert cost[PlacementPolicy.SPREAD] == -left
        assert cost[PlacementPolicy.FGD] == pytest.approx(unusable(left, able) - unusable(free, able))
        assert cost[PlacementPolicy.PRICED] == pytest.approx(usable(free, able) - usable(left, able))


@pytest.mark.parametrize(
    ("policy", "demand", "counts"),
    [
        (PlacementPolicy.BINPACK, ALL_SIZES, (1, 2, 3, 4, 5, 6, 7, 8)),
        (PlacementPolicy.SPREAD, ALL_SIZES, (8, 7, 6, 5, 4, 3, 2, 1)),
        # What breaks no pair first, and the less the fewer lack to a four or to a whole node; then pairs, fours, all.
        (PlacementPolicy.PRICED, ALL_SIZES, (1, 5, 3, 2, 7, 6, 4, 8)),
        # Nobody asks for two, and many for four: what is one beyond a four is taken before what is three.
        (PlacementPolicy.PRICED, {1: 300, 4: 100}, (1, 5, 2, 6, 3, 7, 4, 8)),
        (PlacementPolicy.FGD, {1: 300, 4: 100}, (1, 2, 3, 5, 6, 7, 8, 4)),
        # Nothing is known, or nothing but whole nodes: the fullest first.
        (PlacementPolicy.PRICED, {}, (1, 2, 3, 4, 5, 6, 7, 8)),
        (PlacementPolicy.FGD, {}, (1, 2, 3, 4, 5, 6, 7, 8)),
        (PlacementPolicy.PRICED, {8: 5}, (1, 2, 3, 4, 5, 6, 7, 8)),
        (PlacementPolicy.FGD, {8: 5}, (1, 2, 3, 4, 5, 6, 7, 8)),
        # What fits on no node is no reason for anything.
        (PlacementPolicy.PRICED, {1: 300, 4: 100, 9: 1000}, (1, 5, 2, 6, 3, 7, 4, 8)),
        (PlacementPolicy.FGD, {1: 300, 4: 100, 9: 1000}, (1, 2, 3, 5, 6, 7, 8, 4)),
    ],
)
def test_where_a_single_card_is_taken_from(policy: PlacementPolicy, demand: Demand, counts: tuple[int, ...]) -> None:
    assert node_order(policy, 1, 8, demand).counts == counts

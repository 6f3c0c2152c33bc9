"""The choice of cards and nodes."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.calendar import GpuCalendar
from reservation_core.domain.model import Gpu
from reservation_core.domain.placement.card_masks import pick_cards
from reservation_core.domain.placement.pool import NodeCards
from tests.unit.reservation_core.domain.worlds import T0, World, held, job, node


def pieces(mask: int) -> int:
    return (mask & ~(mask << 1)).bit_count()


@given(st.integers(1, 2**10 - 1), st.data())
def test_a_choice_is_free_and_in_the_fewest_pieces(free: int, data: st.DataObject) -> None:
    gpus = data.draw(st.integers(1, free.bit_count()))
    chosen = pick_cards(free, gpus)
    assert chosen & ~free == 0
    assert chosen.bit_count() == gpus
    cards = [1 << number for number in range(10) if free >> number & 1]
    assert pieces(chosen) == min(pieces(sum(some)) for some in combinations(cards, gpus))


@pytest.mark.parametrize(
    ("free", "gpus", "chosen"),
    [
        (0b11110011, 2, 0b00000011),
        (0b11110011, 1, 0b00000001),
        (0b11011111, 2, 0b11000000),
        # Runs of 1, 3 and 2: the longest ones, as much as is needed.
        (0b11011101, 4, 0b01011100),
        (0b10101010, 2, 0b00001010),
        (0b11111111, 8, 0b11111111),
    ],
)
def test_the_shortest_run_that_is_long_enough(free: int, gpus: int, chosen: int) -> None:
    assert pick_cards(free, gpus) == chosen


def test_a_gap_between_indices_is_a_gap_between_bits() -> None:
    gpus = [Gpu(index, "a", index, "h100") for index in (0, 1, 10**9)]
    cards = NodeCards(0, gpus, {gpu.id: GpuCalendar() for gpu in gpus}).cards
    assert [card.bit for card in cards] == [1, 2, 8]


def test_the_fullest_node_that_fits_is_taken() -> None:
    nodes = (node("a", 8), node("b", 8, first_id=10), node("c", 8, first_id=20))
    rows = tuple(held(f"r{gpu}", gpu, -1, 99) for gpu in (10, 11, 20, 21, 22, 23, 24, 25))
    (start,) = World(nodes, rows, (job(1, 4),)).state().plan_starts(T0, 1)
    assert [(gpu.node, gpu.index) for gpu in start.gpus] == [("b", index) for index in (2, 3, 4, 5)]


def test_a_card_with_a_gap_that_fits_goes_before_one_that_stays_free() -> None:
    rows = (held("b1", 1, 10, 20, is_held=False),)
    (start,) = World((node("a", 2),), rows, (job(1, minutes=10),)).state().plan_starts(T0, 1)
    assert start.gpus[0].index == 1
    (start,) = World((node("a", 2),), rows, (job(1, minutes=11),)).state().plan_starts(T0, 1)
    assert start.gpus[0].index == 0

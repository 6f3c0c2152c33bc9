"""The choice of cards and nodes."""

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.calendar import GpuCalendar
from reservation_core.domain.cards.card_masks import pick_gpus
from reservation_core.domain.cards.link_words import Links, read_links
from reservation_core.domain.cards.placement_policies import PlacementPolicy
from reservation_core.domain.model import Gpu, GpuCondition, Node
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.slot_decisions import plan_slots
from reservation_core.domain.planning.start_decisions import plan_starts
from reservation_core.domain.pools.pool import NodeGpus
from tests.unit.reservation_core.domain.planning.worlds import T0, World, held, job, node, snapshot


def pieces(mask: int) -> int:
    return (mask & ~(mask << 1)).bit_count()


@given(st.integers(1, 2**10 - 1), st.data())
def test_a_choice_is_free_and_in_the_fewest_pieces(free: int, data: st.DataObject) -> None:
    gpus = data.draw(st.integers(1, free.bit_count()))
    chosen = pick_gpus(free, gpus)
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
    assert pick_gpus(free, gpus) == chosen


def test_a_gap_between_indices_is_a_gap_between_bits() -> None:
    gpus = [Gpu(index, "a", index, "h100") for index in (0, 1, 10**9)]
    cards = NodeGpus(0, gpus, {gpu.id: GpuCalendar() for gpu in gpus}).cards
    assert [card.bit for card in cards] == [1, 2, 8]


def test_the_fullest_node_that_fits_is_taken() -> None:
    nodes = (node("a", 8), node("b", 8, first_id=10), node("c", 8, first_id=20))
    rows = tuple(held(f"r{gpu}", gpu, -1, 99) for gpu in (10, 11, 20, 21, 22, 23, 24, 25))
    (start,) = plan_starts(World(nodes, rows, (job(1, 4),)).state(), T0, 1)
    assert [(gpu.node, gpu.index) for gpu in start.gpus] == [("b", index) for index in (2, 3, 4, 5)]


def test_a_card_with_a_gap_that_fits_goes_before_one_that_stays_free() -> None:
    rows = (held("b1", 1, 10, 20, is_held=False),)
    (start,) = plan_starts(World((node("a", 2),), rows, (job(1, minutes=10),)).state(), T0, 1)
    assert start.gpus[0].index == 1
    (start,) = plan_starts(World((node("a", 2),), rows, (job(1, minutes=11),)).state(), T0, 1)
    assert start.gpus[0].index == 0


PAIRS = read_links("NV4 0,2 1,3")


def linked(name: str, links: Links | None, *, first_id: int = 0) -> Node:
    return replace(node(name, 4, first_id=first_id), links=links)


def started(world: World, policy: PlacementPolicy = PlacementPolicy.BINPACK) -> list[tuple[str, list[int]]]:
    """Where the jobs of a world start: the node of the first card, and the indices."""
    state = Picture(snapshot(world.nodes, world.commitments, world.waiting, frozenset({None, "h100"})), policy)
    starts = plan_starts(state, T0, 10)
    return [(start.gpus[0].node, [gpu.index for gpu in start.gpus]) for start in starts]


def test_a_job_gets_the_cards_that_are_joined_best() -> None:
    assert started(World((linked("a", PAIRS),), (), (job(1, 2),))) == [("a", [0, 2])]
    assert started(World((linked("a", None),), (), (job(1, 2),))) == [("a", [0, 1])]
    assert started(World((linked("a", read_links("NV18 0-3")),), (), (job(1, 2),))) == [("a", [0, 1])]
    # A pair whose card is in use is broken rather than a whole one.
    rows = (held("r", 1, -1, 99),)
    assert started(World((linked("a", PAIRS),), rows, (job(1), job(2, 2)))) == [("a", [3]), ("a", [0, 2])]


def test_of_cards_that_are_joined_as_well_those_that_are_promised_soon() -> None:
    rows = tuple(held("b", gpu, 10, 20, is_held=False) for gpu in (1, 3))
    nodes = (linked("a", PAIRS),)
    assert started(World(nodes, rows, (job(1, 2, minutes=10),))) == [("a", [1, 3])]
    assert started(World(nodes, rows, (job(1, 2, minutes=11),))) == [("a", [0, 2])]
    # No pair is broken for that.
    assert started(World(nodes, rows[:1], (job(1, 2, minutes=10),))) == [("a", [1, 3])]


def test_of_nodes_with_as_many_free_cards_the_one_with_a_pair() -> None:
    nodes = (linked("a", PAIRS), linked("b", PAIRS, first_id=4), linked("c", None, first_id=8))
    rows = tuple(held(f"r{gpu}", gpu, -1, 99) for gpu in (2, 3, 5, 7, 10, 11))
    assert started(World(nodes, rows, (job(1, 2),))) == [("b", [0, 2])]
    assert started(World(nodes, rows, (job(1, 2), job(2, 2), job(3)))) == [("b", [0, 2]), ("a", [0, 1]), ("c", [0])]


@pytest.mark.parametrize("others", ["NV4 0,1 2,3", "PIX 0-3", None])
def test_a_node_whose_cards_are_all_joined_well_is_better_than_one_with_pairs(others: str | None) -> None:
    """That it makes no difference which of its cards are taken says nothing of how well they are joined."""
    less = None if others is None else read_links(others)
    nodes = (linked("a", less), linked("b", read_links("NV18 0-3"), first_id=4), linked("c", less, first_id=8))
    assert started(World(nodes, (), (job(1, 3),))) == [("b", [0, 1, 2])]
    assert started(World(nodes, (), (job(1),))) == [("a", [0])]


def test_links_are_those_of_the_usable_cards() -> None:
    """Card 1 is out of use: 2 and 3, neighbours by number, are no pair, and 0 and 2 are."""
    whole = linked("a", PAIRS)
    gpus = tuple(replace(gpu, condition=GpuCondition.LOST) if gpu.index == 1 else gpu for gpu in whole.gpus)
    assert started(World((replace(whole, gpus=gpus),), (), (job(1, 2),))) == [("a", [0, 2])]


def test_a_slot_is_on_cards_that_are_joined_best() -> None:
    rows = tuple(held("r", gpu, -1, 10) for gpu in range(4))
    state = World((linked("a", PAIRS),), rows, (job(1, 2),)).state()
    assert plan_starts(state, T0, 10) == []
    [slot] = plan_slots(state, T0, 10, 10).slots
    assert [gpu.index for gpu in slot.gpus] == [0, 2]


@pytest.mark.parametrize(
    ("policy", "taken"),
    [
        (PlacementPolicy.BINPACK, "b"),  # 4 are free
        (PlacementPolicy.SPREAD, "a"),  # 8
        (PlacementPolicy.FGD, "c"),  # 5
        (PlacementPolicy.PRICED, "c"),
    ],
)
def test_the_policy_says_which_node_a_single_card_is_taken_from(policy: PlacementPolicy, taken: str) -> None:
    """Waiting jobs ask for fours and whole nodes, and one for a single card; they are seen before any job starts."""
    nodes = (node("a", 8), node("b", 8, first_id=10), node("c", 8, first_id=20))
    rows = tuple(held(f"r{gpu}", gpu, -1, 99) for gpu in (10, 11, 12, 13, 20, 21, 22))
    line = (job(1), *(job(seq, 4, 5) for seq in range(2, 9)), *(job(seq, 8, 9) for seq in range(9, 12)))
    assert started(World(nodes, rows, line), policy)[0] == (taken, {"a": [0], "b": [4], "c": [3]}[taken])


def test_those_who_run_say_what_is_usual_too() -> None:
    nodes = (node("a", 8), node("b", 8, first_id=10), node("c", 8, first_id=20))
    fours = [held("r1", gpu, -1, 99) for gpu in (10, 11, 12, 13)] + [held("r2", gpu, -1, 99) for gpu in (0, 1, 2, 3)]
    rows = (*fours, *(held("r3", gpu, -1, 99) for gpu in (20, 21, 22)))
    assert started(World(nodes, rows, (job(1),)), PlacementPolicy.PRICED) == [("c", [3])]
    assert started(World(nodes, rows, (job(1),)), PlacementPolicy.BINPACK) == [("a", [4])]


def test_what_is_usual_is_what_is_true_now() -> None:
    """Fours run: what is one beyond a four is taken first. They are gone: the fullest is. Others come to run: again."""
    nodes = (node("a", 8), node("b", 8, first_id=10), node("c", 8, first_id=20), node("d", 8, first_id=30))
    blocks = [held("r3", gpu, -1, 99) for gpu in (10, 11, 12, 13, 20, 21, 22)]
    fours = {f"r{first}": [held(f"r{first}", gpu, -1, 99) for gpu in range(first, first + 4)] for first in (0, 4)}
    rows = (*blocks, *fours["r0"], *fours["r4"])
    state = Picture(snapshot(nodes, rows, (), frozenset({None, "h100"})), PlacementPolicy.PRICED)

    def next_start(seq: int) -> tuple[str, int]:
        state.set_reservation(f"job-{seq}", job(seq), ())
        (start,) = plan_starts(state, T0, 10)
        state.set_reservation(start.id, None, ())
        return start.gpus[0].node, start.gpus[0].index

    assert next_start(1) == ("c", 3)
    for gone in ("r0", "r4", "r3"):
        state.set_reservation(gone, None, ())
    for number, gpu in enumerate((0, 1, 2, 10, 11, 12, 13, 20, 21, 22, 30, 31, 32)):
        state.set_reservation(f"s{number}", None, [held(f"s{number}", gpu, -1, 99)])
    assert next_start(2) == ("b", 4)


def test_who_has_just_started_is_usual() -> None:
    """Fours start where exactly four are free. From then on what is one beyond a four is taken before a pair."""
    free = {"b": 2, "c": 5, "d": 4, "e": 4}
    nodes = tuple(node(name, 8, first_id=10 * number) for number, name in enumerate(free))
    taken = [gpu.id for listed_node in nodes for gpu in listed_node.gpus[free[listed_node.name] :]]
    rows = tuple(held(f"r{gpu}", gpu, -1, 99) for gpu in taken)
    state = Picture(snapshot(nodes, rows, (job(1, 4), job(2, 4))), PlacementPolicy.PRICED)
    assert [start.gpus[0].node for start in plan_starts(state, T0, 10)] == ["d", "e"]
    state.set_reservation("job-3", job(3), ())
    assert [start.gpus[0].node for start in plan_starts(state, T0, 10)] == ["c"]


def test_links_are_those_of_the_usable_cards_whatever_their_bits_are() -> None:
    """The first card is out of use: the bits of the others are not their indices."""
    whole = linked("a", read_links("NV4 0,3 1,2"))
    gpus = tuple(replace(gpu, condition=GpuCondition.LOST) if gpu.index == 0 else gpu for gpu in whole.gpus)
    assert started(World((replace(whole, gpus=gpus),), (), (job(1, 2),))) == [("a", [1, 2])]
    # Links that don't speak of all cards say nothing.
    short = replace(whole, links=read_links("NV4 0,2 1"))
    assert started(World((short,), (), (job(1, 2),))) == [("a", [0, 1])]

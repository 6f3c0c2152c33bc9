"""Which cards are taken together, against an answer found by trying all sets."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.cards.card_links import EXACT, GpuSets, best_gpus, gpu_sets, links_between
from reservation_core.domain.cards.card_masks import pick_gpus
from reservation_core.domain.cards.link_words import Links, read_links
from tests.unit.reservation_core.domain.cards.test_link_words import topologies

Cards = tuple[int, ...]

TWO_ISLANDS = read_links("NV4 0-3 4-7")
PAIRS = read_links("X NV2 PHB PHB;NV2 X PHB PHB;PHB PHB X NV2;PHB PHB NV2 X")
FOUR_ISLANDS = read_links("NV4 0-3 4-7 8-11 12-15")

LURING = read_links(
    "X NV4 NV4 SYS SYS SYS PIX PIX NV4;"
    "NV4 X NV4 SYS NV4 NV4 SYS SYS PIX;"
    "NV4 NV4 X SYS SYS PIX PIX NV4 SYS;"
    "SYS SYS SYS X PIX SYS NV4 SYS SYS;"
    "SYS NV4 SYS PIX X SYS PIX PIX PIX;"
    "SYS NV4 PIX SYS SYS X SYS SYS SYS;"
    "PIX SYS PIX NV4 PIX SYS X PIX SYS;"
    "PIX SYS NV4 SYS PIX SYS PIX X SYS;"
    "NV4 PIX SYS SYS PIX SYS SYS SYS X;"
)
"""Whatever card a set grows from, another than the two that would make the best three is joined with it as well."""


def quality(links: Links, cards: Cards) -> tuple[int, int]:
    joined = [links[one][other] for one, other in combinations(cards, 2)]
    return min(joined, default=0), sum(joined)


def worth(links: Links, cards: Cards) -> int:
    """For each number of cards, the weakest link of the best set that is left."""
    return sum(
        max(quality(links, some) for some in combinations(cards, count))[0] for count in range(2, len(cards) + 1)
    )


def pieces(cards: Cards) -> int:
    return sum(card - 1 not in cards for card in cards)


def best_by_trying(links: Links, free: Cards, gpus: int, preferred: Cards = ()) -> Cards:
    def rating(chosen: Cards) -> tuple[object, ...]:
        left = tuple(sorted(set(free) - set(chosen)))
        return (
            quality(links, chosen),
            len(set(chosen) & set(preferred)),
            worth(links, left),
            -pieces(chosen),
            -pieces(left),
            -mask(chosen),
        )

    return max(combinations(free, gpus), key=rating)


def mask(cards: Cards) -> int:
    return sum(1 << card for card in cards)


def cards_in(chosen: int) -> Cards:
    return tuple(card for card in range(chosen.bit_length()) if chosen >> card & 1)


@st.composite
def questions(draw: st.DrawFn, links: Links) -> tuple[Cards, int, Cards]:
    """Free cards of a node, at most `EXACT`; how many are wanted; and which would be liked."""
    free = draw(st.lists(st.integers(0, len(links) - 1), min_size=1, max_size=EXACT, unique=True))
    gpus = draw(st.integers(1, len(free)))
    return tuple(sorted(free)), gpus, tuple(draw(st.lists(st.sampled_from(free), unique=True, max_size=4)))


@given(topologies(most=7), st.data())
def test_up_to_eight_free_cards_the_best_set_is_found(links: Links, data: st.DataObject) -> None:
    free, gpus, preferred = data.draw(questions(links))
    assert cards_in(GpuSets(links).pick(mask(free), gpus)) == best_by_trying(links, free, gpus)
    liked = GpuSets(links).pick(mask(free), gpus, mask(preferred))
    assert cards_in(liked) == best_by_trying(links, free, gpus, preferred)


@given(topologies(most=12, strengths=(1, 5, 9)), st.data())
def test_a_few_free_cards_of_many_are_as_if_there_were_no_others(links: Links, data: st.DataObject) -> None:
    free, gpus, _ = data.draw(questions(links))
    if len(free) <= 6:
        assert cards_in(GpuSets(links).pick(mask(free), gpus)) == best_by_trying(links, free, gpus)


@given(topologies(most=16), st.data())
def test_of_many_free_cards_as_many_as_are_wanted_and_never_worse_than_neighbours(
    links: Links, data: st.DataObject
) -> None:
    free = data.draw(st.integers(1, 2 ** len(links) - 1))
    gpus = data.draw(st.integers(1, free.bit_count()))
    sets = GpuSets(links)
    chosen = sets.pick(free, gpus)
    assert chosen & ~free == 0
    assert chosen.bit_count() == gpus
    assert sets.quality(chosen) >= sets.quality(pick_gpus(free, gpus))
    assert sets.pick(free, gpus, free) == chosen


@given(st.integers(1, 4), st.sets(st.integers(0, 15), min_size=EXACT + 1))
def test_of_many_free_cards_the_smallest_group_that_is_large_enough(gpus: int, free: set[int]) -> None:
    chosen = GpuSets(FOUR_ISLANDS).pick(mask(tuple(free)), gpus)
    sizes = [len(free & set(range(at, at + 4))) for at in (0, 4, 8, 12)]
    taken = [(chosen >> at & 15).bit_count() for at in (0, 4, 8, 12)]
    if gpus <= max(sizes):
        assert sorted(taken) == [0, 0, 0, gpus]
        assert sizes[taken.index(gpus)] == min(size for size in sizes if size >= gpus)


@pytest.mark.parametrize(
    ("links", "free", "gpus", "chosen"),
    [
        # Neighbours 3 and 4 are on two islands.
        (TWO_ISLANDS, 0b00111000, 2, 0b00110000),
        # No island of four is broken while two cards of the other are left.
        (TWO_ISLANDS, 0b00111111, 2, 0b00110000),
        (TWO_ISLANDS, 0b11001111, 2, 0b11000000),
        (TWO_ISLANDS, 0b11011111, 1, 0b00010000),
        (TWO_ISLANDS, 0b11111111, 4, 0b00001111),
        (TWO_ISLANDS, 0b11111110, 3, 0b00001110),
        # More than an island has: all of one, and the rest of the other.
        (TWO_ISLANDS, 0b11111110, 5, 0b11111000),
        (PAIRS, 0b1111, 2, 0b0011),
        (PAIRS, 0b1110, 2, 0b1100),
        (PAIRS, 0b1110, 1, 0b0010),
        (PAIRS, 0b1101, 1, 0b0001),
        (LURING, 0b111111111, 3, 0b111),
    ],
)
def test_groups_that_are_joined_well(links: Links, free: int, gpus: int, chosen: int) -> None:
    assert best_gpus(links, free, gpus) == chosen


@given(st.integers(1, 255), st.data())
def test_where_all_are_joined_alike_neighbouring_indices_decide(free: int, data: st.DataObject) -> None:
    gpus = data.draw(st.integers(1, free.bit_count()))
    alike = tuple(tuple(0 if one == other else 23 for other in range(8)) for one in range(8))
    assert gpu_sets(alike) is None
    assert best_gpus(alike, free, gpus) == best_gpus(None, free, gpus) == pick_gpus(free, gpus)


def test_links_by_other_numbers() -> None:
    links = read_links("X NV1 SYS;NV1 X PHB;SYS PHB X")
    assert links_between(links, (0, 1, 2), (0, 1, 2)) is links
    # Card 1 can't be used: its neighbours are called 0 and 2.
    assert links_between(links, (0, 2), (0, 2)) == ((0, 0, 1), (0, 0, 0), (1, 0, 0))
    assert links_between(links, (1, 2), (0, 1)) == ((0, 3), (3, 0))
    assert links_between(links, (0, 3), (0, 2)) is None
    assert links_between(None, (0, 1), (0, 1)) is None

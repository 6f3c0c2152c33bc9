"""Choosing cards, finding slots and counting what is free, against an oracle that looks at every minute."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.card_choice import (
    SOON,
    BookableGpu,
    LedgerGpu,
    bookable,
    choose,
    never_bookable,
    with_booked,
)
from reservation_core.domain.bookings.nouns import ChosenGpu, Wanted
from reservation_core.domain.bookings.slot_search import free_counts, free_slots, nearest_slots
from reservation_core.domain.calendar import merge, to_micros
from reservation_core.domain.cards.link_words import read_links
from tests.examples import examples

DAY = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = 60_000_000
HORIZON = 40


def minute(n: float) -> datetime:
    """A time, in minutes from DAY."""
    return DAY + timedelta(minutes=n)


def minutes(moment: datetime) -> int:
    """The other way round."""
    return int((moment - DAY) / timedelta(minutes=1))


def micros(n: float) -> int:
    return to_micros(minute(n))


def card(
    gpu_id: int, node: str, index: int, *busy: tuple[float, float], gpu_type: str = "h100", available: bool = True
):
    ranges = tuple(merge([(micros(start), micros(end)) for start, end in busy]))
    return BookableGpu(gpu_id, node, index, gpu_type, available, ranges)


@st.composite
def labs(draw: st.DrawFn) -> list[BookableGpu]:
    """Up to three nodes of up to three cards; busy ranges begin and end at any quarter of a minute."""
    cards: list[BookableGpu] = []
    for node in "abc"[: draw(st.integers(1, 3))]:
        gpu_type = draw(st.sampled_from(["h100", "t4"]))
        for index in draw(st.lists(st.integers(0, 4), min_size=1, max_size=3, unique=True)):
            times = st.integers(0, 4 * HORIZON).map(lambda quarter: quarter / 4)
            busy = draw(st.lists(st.tuples(times, times).filter(lambda r: r[0] < r[1]), max_size=3))
            available = draw(st.sampled_from([True, True, True, False]))
            cards.append(card(len(cards), node, index, *busy, gpu_type=gpu_type, available=available))
    return cards


wishes = st.builds(
    Wanted,
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([None, "h100", "t4"]),
    st.sampled_from([None, None, "a"]),
).map(lambda wanted: Wanted(wanted.gpus, 1, wanted.gpu_type, "a") if wanted.node else wanted)


def free(each: BookableGpu, start: int, end: int) -> bool:
    return each.available and all(to <= start or end <= since for since, to in each.busy)


def fits(cards: list[BookableGpu], wanted: Wanted, gpu_type: str, start: int, end: int) -> bool:
    """By trying every set of nodes."""
    able = {
        node: sum(
            free(offered, start, end) for offered in cards if offered.node == node and offered.gpu_type == gpu_type
        )
        for node in {offered.node for offered in cards if wanted.node in (None, offered.node)}
    }
    return any(all(able[node] >= wanted.gpus for node in nodes) for nodes in combinations(able, wanted.nodes))


def types_of(cards: list[BookableGpu], wanted: Wanted) -> list[str]:
    return sorted({offered.gpu_type for offered in cards if wanted.gpu_type in (None, offered.gpu_type)})


@examples(400)
@given(labs(), wishes, st.integers(0, HORIZON), st.integers(1, 15))
def test_cards_are_chosen_where_there_are_enough_and_only_free_ones(
    cards: list[BookableGpu], wanted: Wanted, start: int, length: int
) -> None:
    begin, end = micros(start), micros(start + length)
    chosen = choose(cards, wanted, begin, end)
    assert (chosen is not None) == any(fits(cards, wanted, model, begin, end) for model in types_of(cards, wanted))
    if chosen is None:
        return
    by_id = {offered.gpu_id: offered for offered in cards}
    picked = [by_id[choice.gpu_id] for choice in chosen]
    assert all(free(taken_card, begin, end) for taken_card in picked)
    assert len({taken_card.gpu_id for taken_card in picked}) == wanted.gpus * wanted.nodes
    assert len({taken_card.gpu_type for taken_card in picked}) == 1
    assert wanted.gpu_type in (None, picked[0].gpu_type)
    assert all(wanted.node in (None, taken_card.node) for taken_card in picked)
    for rank in range(wanted.nodes):
        of_rank = [by_id[choice.gpu_id].node for choice in chosen if choice.rank == rank]
        assert (len(of_rank), len(set(of_rank))) == (wanted.gpus, 1)
    assert len({taken_card.node for taken_card in picked}) == wanted.nodes
    after = with_booked(cards, chosen, begin, end)
    assert not any(free(linked, begin, end) for linked in after if linked.gpu_id in {one.gpu_id for one in picked})


@examples(300)
@given(labs(), wishes, st.integers(0, 20), st.integers(1, 12), st.integers(0, HORIZON))
def test_free_slots_are_every_minute_at_which_it_fits(
    cards: list[BookableGpu], wanted: Wanted, start: int, length: int, span: int
) -> None:
    found = free_slots(cards, wanted, timedelta(minutes=length), minute(start), minute(start + span))
    by_slot = {
        (slot.gpu_type, at)
        for slot in found
        for at in range(
            int((slot.span.start - DAY) / timedelta(minutes=1)),
            int((slot.latest_start - DAY) / timedelta(minutes=1)) + 1,
        )
    }
    by_trying = {
        (gpu_type, at)
        for gpu_type in types_of(cards, wanted)
        for at in range(start, start + span - length + 1)
        if fits(cards, wanted, gpu_type, micros(at), micros(at + length))
    }
    assert by_slot == by_trying
    assert found == sorted(found, key=lambda slot: (slot.span.start, slot.gpu_type))


@examples(300)
@given(labs(), wishes, st.integers(0, HORIZON), st.integers(1, 12))
def test_nearest_slots_are_free_and_none_is_nearer_on_either_side(
    cards: list[BookableGpu], wanted: Wanted, wish: int, length: int
) -> None:
    span = Span(minute(wish), minute(wish + length))
    found = nearest_slots(cards, wanted, span, minute(0), minute(3 * HORIZON))
    able = [
        at
        for at in range(3 * HORIZON - length + 1)
        if any(fits(cards, wanted, model, micros(at), micros(at + length)) for model in types_of(cards, wanted))
    ]
    starts = [minutes(slot.start) for slot in found]
    assert starts == sorted(set(starts))
    assert set(starts) <= set(able)
    assert all(slot.length == span.length for slot in found)
    before, after = [at for at in able if at < wish], [at for at in able if at >= wish]
    # A wish that would do is its own nearest slot.
    assert wish in able or not before or max(before) in starts
    assert not after or min(after) in starts
    assert bool(starts) == bool(able)
    if (
        after
        and max(after) - min(after) >= 4 * length
        and all(number in after for number in range(min(after), max(after)))
    ):
        assert len(starts) >= 3


@examples(300)
@given(labs(), wishes, st.integers(0, HORIZON), st.integers(2, 12), st.lists(st.integers(0, HORIZON), max_size=3))
def test_nearest_slots_of_one_side_are_told_apart(
    cards: list[BookableGpu], wanted: Wanted, wish: int, length: int, aims: list[int]
) -> None:
    span = Span(minute(wish), minute(wish + length))
    found = nearest_slots(cards, wanted, span, minute(0), minute(3 * HORIZON), aims=[minute(aim) for aim in aims])
    starts = [minutes(slot.start) for slot in found]
    for side in ([at for at in starts if at < wish], [at for at in starts if at >= wish]):
        assert all(2 * (later - sooner) >= length for sooner, later in pairwise(side))


@examples(300)
@given(labs(), st.integers(0, 20), st.integers(1, HORIZON), st.integers(1, 13))
def test_counts_are_of_cards_free_for_the_whole_step(
    cards: list[BookableGpu], start: int, span: int, step: int
) -> None:
    found = free_counts(cards, minute(start), minute(start + span), timedelta(minutes=step))
    for gpu_type, (total, counts) in found.items():
        of_type = [offered for offered in cards if offered.gpu_type == gpu_type]
        assert total == len(of_type)
        assert counts == [
            sum(free(card, micros(at), micros(min(at + step, start + span))) for card in of_type)
            for at in range(start, start + span, step)
        ]
    assert set(found) == {offered.gpu_type for offered in cards}


@settings(deadline=None)
@given(labs(), wishes)
def test_never_is_told_exactly_when_an_empty_calendar_would_not_do(cards: list[BookableGpu], wanted: Wanted) -> None:
    empty = [BookableGpu(c.gpu_id, c.node, c.index, c.gpu_type, c.available) for c in cards]
    possible = any(fits(empty, wanted, model, micros(0), micros(1)) for model in types_of(cards, wanted))
    assert (never_bookable(cards, wanted) is None) == possible


def test_neighbours_and_the_fullest_node_are_preferred() -> None:
    cards = [card(n, "a", n, *([(0, 60)] if n == 1 else [])) for n in range(4)]
    cards += [card(4 + n, "b", n) for n in range(4)]
    assert choose(cards, Wanted(2), micros(0), micros(30)) == (ChosenGpu(2, 0), ChosenGpu(3, 0))
    assert choose(cards, Wanted(1), micros(0), micros(30)) == (ChosenGpu(0, 0),)
    assert choose(cards, Wanted(4), micros(0), micros(30)) == tuple(ChosenGpu(4 + n, 0) for n in range(4))


def test_cards_that_are_joined_best_go_together() -> None:
    links = read_links("NV4 0,2 1,3")
    cards = [replace(card(n, "a", n), links=links) for n in range(4)]
    assert choose(cards, Wanted(2), micros(0), micros(30)) == (ChosenGpu(0, 0), ChosenGpu(2, 0))
    # The pair whose free time the booking fills best.
    cards[3] = replace(card(3, "a", 3, (30, 60)), links=links)
    assert choose(cards, Wanted(2), micros(0), micros(30)) == (ChosenGpu(1, 0), ChosenGpu(3, 0))
    after = with_booked(cards, (ChosenGpu(1, 0), ChosenGpu(3, 0)), micros(0), micros(30))
    assert [linked.links for linked in after] == [links] * 4
    # A node with a pair goes before one that has as many free cards and none.
    split = [replace(card(4 + n, "0", n, *([(0, 60)] if n > 1 else [])), links=links) for n in range(4)]
    pair = [replace(card(8 + n, "b", n, *([(0, 60)] if n % 2 else [])), links=links) for n in range(4)]
    assert choose([*split, *pair], Wanted(2), micros(0), micros(30)) == (ChosenGpu(8, 0), ChosenGpu(10, 0))
    # Links that don't speak of all its cards say nothing.
    cards = [replace(offered, index=offered.index + 1) for offered in cards]
    assert choose(cards, Wanted(2), micros(0), micros(20)) == (ChosenGpu(2, 0), ChosenGpu(3, 0))


@pytest.mark.parametrize("others", ["NV4 0,1 2,3", "PIX 0-3", None])
def test_a_node_whose_cards_are_all_joined_well_goes_before_one_with_pairs(others: str | None) -> None:
    less = None if others is None else read_links(others)
    cards = [replace(card(n, "a", n), links=less) for n in range(4)]
    cards += [replace(card(4 + n, "b", n), links=read_links("NV18 0-3")) for n in range(4)]
    assert choose(cards, Wanted(3), micros(0), micros(30)) == tuple(ChosenGpu(4 + n, 0) for n in range(3))
    assert choose(cards, Wanted(1), micros(0), micros(30)) == (ChosenGpu(0, 0),)


def test_a_booking_goes_where_it_leaves_the_least_time_unused() -> None:
    cards = [card(0, "a", 0), card(1, "a", 1, (0, 60), (90, 120)), card(2, "a", 2)]
    assert choose(cards, Wanted(1), micros(60), micros(90)) == (ChosenGpu(1, 0),)


def test_the_cards_it_had_are_kept_if_all_can_be_had() -> None:
    cards = [card(n, "a", n) for n in range(3)]
    had = (ChosenGpu(2, 0),)
    assert choose(cards, Wanted(1), micros(0), micros(30), keep=had) == had
    busy = [*cards[:2], card(2, "a", 2, (0, 1))]
    assert choose(busy, Wanted(1), micros(0), micros(30), keep=had) == (ChosenGpu(0, 0),)


def test_what_cannot_be_had_now_is_there_for_later() -> None:
    known = [
        LedgerGpu(0, "a", 0, "h100", bookable=True, usable_now=False, overrun=False, rows=[]),
        LedgerGpu(1, "a", 1, "h100", bookable=True, usable_now=True, overrun=True, rows=[]),
        LedgerGpu(2, "a", 2, "h100", bookable=False, usable_now=False, overrun=False, rows=[]),
    ]
    cards = bookable(known, DAY)
    soon = to_micros(DAY + SOON)
    assert choose(cards, Wanted(1), soon - MINUTE, soon + MINUTE) is None
    assert choose(cards, Wanted(2), soon, soon + MINUTE) == (ChosenGpu(0, 0), ChosenGpu(1, 0))
    assert choose(cards, Wanted(3), soon, soon + MINUTE) is None

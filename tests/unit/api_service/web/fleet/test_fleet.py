"""Differences from the moment before, and the numbers above the tiles."""

from collections import Counter
from dataclasses import replace
from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st

from api_service.web.fleet.card_tiles import OUT_OF_USE, TileState, state_of
from api_service.web.fleet.fleet import FleetPicture, counts, fleet_of, openings_of, with_openings
from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.nouns import FreeSlot
from reservation_core.domain.statuses import GpuState
from reservation_core.ports.nodes.cards_now import GpuNow, NodeNow
from tests.unit.api_service.web.fleet.fleets import ADA, BOB, HOUR, NOW, card, hold, node


def _slot(kind: str, start: datetime) -> FreeSlot:
    return FreeSlot(kind, Span(start, start + HOUR), start)


def test_only_what_differs_has_a_new_version() -> None:
    first = fleet_of(None, [node("a", card()), node("b", card())], NOW)
    assert (first.version, first.layout, [listed_node.version for listed_node in first.nodes]) == (1, 1, [1, 1])
    second = fleet_of(first, [node("a", card()), node("b", card(holder=hold()))], NOW + HOUR)
    assert (second.version, second.layout, [listed_node.version for listed_node in second.nodes]) == (2, 1, [1, 2])
    assert second.nodes[0] is first.nodes[0]
    third = fleet_of(second, [node("a", card()), node("b", card(holder=hold()))], NOW + 2 * HOUR)
    assert (third.version, third.read_at) == (2, NOW + 2 * HOUR)


def test_a_node_that_says_something_else_is_different() -> None:
    before = fleet_of(None, [node("a", card())], NOW)
    for said in (node("a", card(), available=False), node("a", card(), detail="Fenced.")):
        assert fleet_of(before, [said], NOW).nodes[0].version == 2


def test_what_comes_and_goes_is_a_new_layout() -> None:
    before = fleet_of(None, [node("a", card()), node("b")], NOW)
    for nodes in (
        [node("a", card())],
        [node("a", card()), node("b"), node("c")],
        [node("a", card(), card(1)), node("b")],
        [node("a", card(gpu_type="a100")), node("b")],
        [node("a"), node("b")],
        [node("a", card()), replace(node("b"), rack="B-12")],
    ):
        after = fleet_of(before, nodes, NOW)
        assert (after.version, after.layout) == (2, 2)


def test_marks_are_safe_in_selectors_and_of_one_node_each() -> None:
    names = ["gpu.a", "gpu a", "x#y", "<b>", "gpu:a", "GPU.a"]
    marks = [other_node.mark for other_node in fleet_of(None, [node(name) for name in names], NOW).nodes]
    assert len(set(marks)) == len(names)
    assert all(mark.isascii() and mark.isalnum() and mark[0].isalpha() for mark in marks)


def test_the_next_opening_is_that_of_types_that_are_full() -> None:
    cards = [card(0, holder=hold()), card(1, gpu_type="a100"), card(2, gpu_type="l4", follower=hold(start=NOW + HOUR))]
    fleet = fleet_of(None, [node("a", *cards)], NOW)
    assert [(type_count.gpu_type, type_count.known, type_count.next_at) for type_count in counts(fleet, ADA)] == [
        ("a100", True, None), ("h100", False, None), ("l4", False, None)
    ]  # fmt: skip
    slots = [_slot("h100", NOW + 3 * HOUR), _slot("a100", NOW), _slot("h100", NOW + 2 * HOUR)]
    found = with_openings(fleet, openings_of(fleet, slots))
    assert found.version == 2
    assert [(count.gpu_type, count.known, count.next_at) for count in counts(found, ADA)] == [
        ("a100", True, None), ("h100", True, NOW + 2 * HOUR), ("l4", True, None)
    ]  # fmt: skip
    assert with_openings(found, found.openings) is found


def test_an_opening_is_forgotten_when_a_card_is_free() -> None:
    full = fleet_of(None, [node("a", card(holder=hold()))], NOW)
    told = with_openings(full, {"h100": NOW + HOUR})
    free = with_openings(fleet_of(told, [node("a", card())], NOW), {"h100": NOW + HOUR})
    assert counts(free, ADA)[0].next_at is None


holds = st.none() | st.builds(hold, st.sampled_from([ADA, BOB]))
kinds = st.sampled_from(["a100", "h100"])


@st.composite
def nodes_of_cards(draw: st.DrawFn) -> list[NodeNow]:
    def one(index: int) -> GpuNow:
        state = draw(st.sampled_from(GpuState))
        holder = hold(draw(st.sampled_from([ADA, BOB]))) if state is GpuState.HELD else draw(holds)
        if state is GpuState.FREE:
            holder = None
        return card(index, state, holder, draw(holds), gpu_type=draw(kinds))

    return [
        node(f"n{number}", *(one(index) for index in range(draw(st.integers(0, 4)))), available=draw(st.booleans()))
        for number in range(draw(st.integers(0, 4)))
    ]


@given(st.lists(nodes_of_cards(), min_size=1, max_size=4))
def test_the_numbers_are_what_counting_says_however_they_came(moments: list[list[NodeNow]]) -> None:
    fleet: FleetPicture | None = None
    for nodes in moments:
        fleet = fleet_of(fleet, nodes, NOW)
    assert fleet is not None
    for user_id in (ADA, BOB, 3):
        wanted: dict[str, Counter[TileState]] = {}
        for moment in moments[-1]:
            for one in moment.cards:
                state = state_of(one, available=moment.available, user_id=user_id)
                wanted.setdefault(one.gpu_type, Counter())[state] += 1
        told = {
            c.gpu_type: (c.cards, c.free, c.soon, c.mine, c.others, c.maintenance, c.out)
            for c in counts(fleet, user_id)
        }
        assert told == {
            kind: (
                states.total(),
                states[TileState.FREE],
                states[TileState.SOON],
                states[TileState.MINE],
                states[TileState.OTHERS],
                states[TileState.MAINTENANCE],
                sum(states[out] for out in OUT_OF_USE),
            )
            for kind, states in wanted.items()
        }


@given(st.lists(nodes_of_cards(), min_size=2, max_size=5))
def test_who_has_seen_a_version_is_shown_all_that_differs_from_it(moments: list[list[NodeNow]]) -> None:
    """Somebody who takes over the nodes with newer versions than theirs, or all where the layout is newer, has all."""
    fleet = fleet_of(None, moments[0], NOW)
    shown = {listed_node.name: listed_node.now for listed_node in fleet.nodes}
    for nodes in moments[1:]:
        since = fleet.version
        fleet = fleet_of(fleet, nodes, NOW)
        if since < fleet.layout:
            shown = {listed_node.name: listed_node.now for listed_node in fleet.nodes}
        else:
            shown |= {listed_node.name: listed_node.now for listed_node in fleet.nodes if listed_node.version > since}
        assert list(shown.values()) == nodes

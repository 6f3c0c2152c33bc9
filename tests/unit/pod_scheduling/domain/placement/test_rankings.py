"""What every policy must hold to: what it gives is free, and who would fit is never refused."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pod_scheduling.domain.placement.fleet import Fleet
from pod_scheduling.domain.placement.rankings import ranking_of
from pod_scheduling.domain.placement.tasks import WHOLE, NodeShape, Spot, Task
from reservation_core.domain.cards.placement_policies import PlacementPolicy
from tests.examples import examples
from tests.unit.pod_scheduling.domain.placement.fleets import Model, fleet_of, nodes, tasks

policies = st.sampled_from(PlacementPolicy)
usual = st.lists(st.tuples(tasks, st.integers(1, 9)), max_size=6)


@examples(80)
@given(policies, nodes, st.lists(tasks, max_size=12), usual, st.booleans(), st.data())
def test_who_fits_gets_a_spot_that_is_free_and_nobody_else_does(
    policy: PlacementPolicy,
    shapes: list[NodeShape],
    arriving: list[Task],
    known: list[tuple[Task, int]],
    cards_only: bool,
    data: st.DataObject,
) -> None:
    model = Model({shape.name: shape for shape in shapes})
    fleet = fleet_of(model)
    ranking = ranking_of(policy, known)
    ranking.reconsider(fleet)
    for number, task in enumerate(arriving):
        ranking.learn(task)
        asked = data.draw(st.none() | st.permutations((*model.shapes, "nobody")))
        spot = ranking.choose(fleet, task, asked, cards_only=cards_only)
        able = [name for name in model.shapes if model.has_room(task, name, cards_only=cards_only)]
        if spot is None:
            assert not able
        else:
            assert spot.node in able
            assert set(spot.cards) <= set(model.cards_for(task, spot.node))
            assert list(spot.cards) == sorted(set(spot.cards))
            assert len(spot.cards) == task.cards
            key = str(number)
            fleet.take(key, task, spot)
            model.taken[key] = (task, spot)
        if data.draw(st.booleans()):
            ranking.reconsider(fleet)
        if model.taken and data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(sorted(model.taken)))
            fleet.give_back(gone)
            del model.taken[gone]
        for name, shape in model.shapes.items():
            held = [(listed_task, at.cards) for listed_task, at in model.taken.values() if at.node == name]
            for card in range(shape.cards):
                on_card = [held_task for held_task, cards in held if card in cards]
                assert sum(held_task.card_milli for held_task in on_card) <= WHOLE
                assert len(on_card) == 1 or sum(held_task.card_memory for held_task in on_card) <= shape.card_memory


@examples(25)
@given(policies, nodes, st.lists(tasks, min_size=1, max_size=5), usual)
def test_all_nodes_at_once_are_scored_as_each_alone_and_as_for_the_first_time(
    policy: PlacementPolicy, shapes: list[NodeShape], arriving: list[Task], known: list[tuple[Task, int]]
) -> None:
    fleet = fleet_of(Model({shape.name: shape for shape in shapes}))
    ranking = ranking_of(policy, known)
    ranking.reconsider(fleet)
    for number, task in enumerate(arriving):
        for arrival in arriving:
            at = fleet.fitting(arrival)
            scores = ranking.scores(fleet, arrival, at).tolist()
            again = ranking_of(policy, known)
            again.reconsider(fleet)
            assert again.scores(fleet, arrival, at).tolist() == scores
            alone = ranking_of(policy, known)
            alone.reconsider(fleet)
            assert [alone.scores(fleet, arrival, at[i : i + 1]).tolist() for i in range(len(at))] == [
                [s] for s in scores
            ]
        spot = ranking.choose(fleet, task)
        if spot is not None:
            fleet.take(str(number), task, spot)


@pytest.mark.parametrize("policy", PlacementPolicy)
def test_what_is_remembered_of_a_fleet_is_not_said_of_another(policy: PlacementPolicy) -> None:
    usual = [(Task(1, 1, 1, 500), 1), (Task(1, 1, 2), 1)]
    ranking = ranking_of(policy, usual)
    ranking.reconsider(Fleet())
    # Nodes of both fleets have changed equally often, and are in different states.
    for taken in (500, 250):
        fleet = Fleet()
        for name in "ab":
            fleet.put(NodeShape(name, 9, 9, 2, "t4"))
        fleet.take("1", Task(1, 1, 1, taken), Spot("a", (0,)))
        fresh = ranking_of(policy, usual)
        fresh.reconsider(fleet)
        for task in (Task(1, 1, 1, 500), Task(1, 1, 1, 100)):
            at = fleet.fitting(task)
            assert ranking.scores(fleet, task, at).tolist() == fresh.scores(fleet, task, at).tolist()


def holding(cards: dict[str, list[int]], cpu: int = 100) -> Fleet:
    """Nodes with so many thousandths taken of each card."""
    fleet = Fleet()
    for name, taken in cards.items():
        fleet.put(NodeShape(name, cpu, 100, len(taken), "t4"))
        for card, milli in enumerate(taken):
            if milli:
                fleet.take(f"{name}{card}", Task(0, 0, 1, milli), Spot(name, (card,)))
    return fleet


def test_binpack_fills_the_fullest_and_spread_the_emptiest() -> None:
    fleet = holding({"a": [0, 0], "b": [200, 700], "c": [500, 0]})
    share = Task(0, 0, 1, 300)
    assert ranking_of(PlacementPolicy.BINPACK).choose(fleet, share) == Spot("b", (1,))
    assert ranking_of(PlacementPolicy.SPREAD).choose(fleet, share) == Spot("a", (0,))
    assert ranking_of(PlacementPolicy.SPREAD).choose(fleet, share, ["b"]) == Spot("b", (0,))


def test_a_share_goes_where_another_that_comes_often_still_fits() -> None:
    usual = Counter({Task(1, 1, 1, 470): 5, Task(1, 1, 1, 650): 5, Task(1, 1, 1, 320): 5, Task(1, 1, 1): 2})
    fleet = holding({"a": [530, 1000], "b": [320, 1000]})
    for policy, node in ((PlacementPolicy.BINPACK, "a"), (PlacementPolicy.PRICED, "b")):
        ranking = ranking_of(policy, usual.items())
        ranking.reconsider(fleet)
        assert ranking.choose(fleet, Task(1, 1, 1, 320)) == Spot(node, (0,))


def test_processor_time_goes_where_no_card_needs_it() -> None:
    fleet = Fleet()
    fleet.put(NodeShape("a", 24, 100, 2, "t4"))
    fleet.put(NodeShape("b", 24, 100, 2, "t4"))
    fleet.take("1", Task(0, 0, 2), Spot("b", (0, 1)))
    ranking = ranking_of(PlacementPolicy.PRICED, [(Task(12, 1, 1), 10)])
    ranking.reconsider(fleet)
    assert ranking.choose(fleet, Task(12, 1, 0)) == Spot("b", ())


def test_whole_nodes_are_kept_for_those_who_need_them() -> None:
    fleet = holding({"a": [0, 0, 0, 0], "b": [0, 0, 0, 1000]})
    for policy in (PlacementPolicy.FGD, PlacementPolicy.PRICED):
        ranking = ranking_of(policy, [(Task(1, 1, 1), 10), (Task(1, 1, 4), 2)])
        ranking.reconsider(fleet)
        spot = ranking.choose(fleet, Task(1, 1, 1))
        assert spot is not None
        assert spot.node == "b"


def test_processor_time_is_kept_for_tasks_with_several_cards() -> None:
    fleet = Fleet()
    fleet.put(NodeShape("a", 40, 100, 4, "t4"))
    fleet.put(NodeShape("b", 60, 100, 4, "t4"))
    ranking = ranking_of(PlacementPolicy.PRICED, [(Task(1, 1, 1), 10), (Task(40, 1, 4), 2)])
    ranking.reconsider(fleet)
    assert ranking.choose(fleet, Task(10, 1, 0)) == Spot("b", ())


def test_cards_that_others_can_use_nothing_but_are_given_last() -> None:
    fleet = Fleet()
    fleet.put(NodeShape("a", 100, 100, 2, "t4"))
    fleet.put(NodeShape("b", 100, 100, 2, "h100"))
    usual = [(Task(1, 1, 1), 10), (Task(1, 1, 1, gpu_types=frozenset({"t4"})), 8)]
    ranking = ranking_of(PlacementPolicy.PRICED, usual)
    ranking.reconsider(fleet)
    spot = ranking.choose(fleet, Task(1, 1, 1))
    assert spot is not None
    assert spot.node == "b"


def test_cards_that_are_joined_best_are_given_together() -> None:
    links = tuple(tuple(9 if one % 2 == other % 2 else 1 for other in range(4)) for one in range(4))
    fleet = Fleet()
    fleet.put(NodeShape("a", 9, 9, 4, "t4", links=links))
    for policy in PlacementPolicy:
        assert ranking_of(policy).choose(fleet, Task(1, 1, 2)) == Spot("a", (0, 2))
    fleet.put(NodeShape("a", 9, 9, 4, "t4", links=links[:2]))
    assert ranking_of(PlacementPolicy.PRICED).choose(fleet, Task(1, 1, 2)) == Spot("a", (0, 1))


def test_what_is_learnt_is_bounded_and_what_comes_often_stays() -> None:
    ranking = ranking_of(PlacementPolicy.FGD)
    often = Task(1, 1, 1)
    for number in range(20_000):
        ranking.learn(Task(number, 1, 0))
        if number % 2:
            ranking.learn(often)
    arrived = ranking.arrived  # type: ignore[attr-defined]
    assert len(arrived) <= 4096
    assert arrived.most_common(1)[0][0] == often
    assert np.isfinite(arrived.total())


@pytest.mark.parametrize("policy", PlacementPolicy)
@pytest.mark.parametrize("full", [0, 1])
def test_a_card_with_too_little_memory_left_is_not_given(policy: PlacementPolicy, full: int) -> None:
    fleet = Fleet()
    fleet.put(NodeShape("a", 9, 9, 2, "t4", card_memory=10))
    fleet.take("1", Task(1, 1, 1, 400, card_memory=8), Spot("a", (full,)))
    fleet.take("2", Task(1, 1, 1, 400, card_memory=2), Spot("a", (1 - full,)))
    task = Task(1, 1, 1, 500, card_memory=3)
    assert ranking_of(policy).choose(fleet, task) == Spot("a", (1 - full,))
    fleet.take("3", task, Spot("a", (1 - full,)))
    assert ranking_of(policy).choose(fleet, task) is None

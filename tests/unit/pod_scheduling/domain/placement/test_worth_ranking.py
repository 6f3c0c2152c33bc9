"""What nodes are worth to FGD and to the default, worked out plainly, node by node and task by task."""

from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pod_scheduling.domain.placement import prospects
from pod_scheduling.domain.placement.fragmentation_descent import usual_tasks
from pod_scheduling.domain.placement.prospects import Prospects
from pod_scheduling.domain.placement.rankings import ranking_of
from pod_scheduling.domain.placement.tasks import WHOLE, NodeShape, Spot, Task
from reservation_core.domain.cards.placement_policies import PlacementPolicy
from tests.examples import examples
from tests.unit.pod_scheduling.domain.placement.fleets import TYPES, Model, fleet_of, nodes, tasks

usual = st.dictionaries(tasks, st.integers(1, 9), min_size=1, max_size=6)


def fragments(cpu: int, levels: list[int], gpu_type: str, arrived: list[tuple[Task, float]]) -> float:
    """As the paper has it."""
    total = 0.0
    for task, part in arrived:
        fits = task.cards and cpu >= task.cpu_milli and sum(level >= task.card_milli for level in levels) >= task.cards
        if task.gpu_types is not None and gpu_type not in task.gpu_types:
            fits = False
        total += part * sum(level for level in levels if not fits or level < task.card_milli)
    return total


@settings(deadline=None)
@given(nodes, usual, st.lists(tasks, min_size=1, max_size=5))
def test_fgd_grades_the_fragments_that_a_task_makes(
    shapes: list[NodeShape], arrived: dict[Task, int], arriving: list[Task]
) -> None:
    model = Model({shape.name: shape for shape in shapes})
    fleet = fleet_of(model)
    ranking = ranking_of(PlacementPolicy.FGD, arrived.items())
    ranking.reconsider(fleet)
    kinds = usual_tasks(arrived)
    for number, task in enumerate(arriving):
        at = fleet.fitting(task)
        for name, score in zip(map(fleet.name_at, at.tolist()), ranking.scores(fleet, task, at).tolist(), strict=True):
            cpu, _, levels, _ = model.free(name)
            before = fragments(cpu, levels, model.shapes[name].gpu_type, kinds)
            grades = []
            cards = model.cards_for(task, name)
            for chosen in [(card,) for card in cards] if task.card_milli < WHOLE else [tuple(cards[: task.cards])]:
                left = [level - task.card_milli * (card in chosen) for card, level in enumerate(levels)]
                after = fragments(cpu - task.cpu_milli, left, model.shapes[name].gpu_type, kinds)
                grades.append(100 / (1 + np.exp((after - before) / 1000)))
            # Where a grade ends, the last digit of a sum decides.
            assert score in {np.floor(max(grades) + e) for e in (-1e-3, 0, 1e-3)}
        spot = ranking.choose(fleet, task)
        if spot is not None:
            fleet.take(str(number), task, spot)
            model.taken[str(number)] = (task, spot)


def test_usual_are_the_most_frequent_that_make_up_95_per_cent() -> None:
    kinds = [Task(number, 0, 1) for number in range(4)]
    arrived = dict(zip(kinds, (50, 45, 4, 1), strict=True))
    assert usual_tasks(arrived) == [(kinds[0], 50 / 95), (kinds[1], 45 / 95)]
    arrived[kinds[1]] = 44
    assert [task for task, _ in usual_tasks(arrived)] == kinds[:3]
    assert usual_tasks({}) == []


def earns(level: int, offers: list[tuple[int, float]]) -> float:
    """The most that a card with so much free earns, each offer any number of times."""

    @cache
    def best(left: int) -> float:
        return max([0.0, *(profit + best(left - milli) for milli, profit in offers if milli <= left)])

    return best(level)


@examples(50)
@given(st.data(), usual)
def test_a_nodes_worth_is_the_mean_of_what_it_may_earn(data: st.DataObject, arrived: dict[Task, int]) -> None:
    shape = data.draw(
        st.builds(
            NodeShape, st.just("a"), st.integers(0, 40), st.integers(0, 40), st.integers(0, 4), st.sampled_from(TYPES)
        )
    )
    model = Model({"a": shape})
    for card in range(shape.cards):
        if milli := data.draw(st.sampled_from((0, 190, 500, 530, 1000))):
            model.taken[str(card)] = (Task(data.draw(st.integers(0, 5)), 0, 1, milli), Spot("a", (card,)))
    fleet = fleet_of(model)
    known = Prospects(arrived, fleet.gpu_types)
    at = np.array([fleet.position("a")])
    worth = known.worth(fleet.cpu_free[at], fleet.memory_free[at], known.cards.now(fleet, at))[0]

    on_cards = [task for task in arrived if task.cards]
    often = np.array([arrived[task] for task in on_cards], float)
    asked: Counter[int] = Counter()
    for task in on_cards:
        asked[task.card_milli] += arrived[task] * task.cards
    prices = prospects.card_prices(asked)
    cpu, memory, levels, _ = model.free("a")
    bounds = []
    for future in prospects._futures(often):
        offers = [
            on_cards[i] for i in future if on_cards[i].gpu_types is None or shape.gpu_type in on_cards[i].gpu_types
        ]
        lowest = []
        for cpu_price, memory_price in known._rates.tolist():
            profits = [
                (
                    task.card_milli,
                    prices[task.card_milli]
                    - (cpu_price * task.cpu_milli + memory_price * task.memory_mib) / task.cards,
                )
                for task in offers
            ]
            lowest.append(cpu * cpu_price + memory * memory_price + sum(earns(level, profits) for level in levels))
        bounds.append(min(lowest))
    assert worth == pytest.approx(np.mean(bounds), rel=1e-4, abs=0.5)


def test_the_same_futures_are_drawn_each_time() -> None:
    arrived = {Task(number, 1, 1, 100 * number): number for number in range(1, 9)}
    one, other = Prospects(arrived, TYPES), Prospects(arrived, TYPES)
    assert np.array_equal(one.cards._table, other.cards._table)
    assert len(prospects._futures(np.ones(3))) == prospects.FUTURES
    assert prospects._futures(np.zeros(0)) == [[]] * prospects.FUTURES


def test_unusual_sizes_cost_what_the_next_larger_usual_one_does() -> None:
    asked = dict.fromkeys(range(3, 990, 3), 1.0) | {470: 1000.0, 810: 1000.0, 320: 900.0}
    prices = prospects.size_prices(asked)
    assert set(prices) == set(asked)
    assert len(set(prices.values())) <= 48
    assert all(prices[a] <= prices[b] + 0.01 for a in prices for b in prices if a <= b)
    few = {470: 3.0, 650: 2.0}
    assert prospects.size_prices(few) == prospects.card_prices(few)
    assert prospects.size_prices({}) == {}


def test_a_crowd_of_different_tasks_is_worked_out_in_bounds() -> None:
    crowd = {Task(number % 50, number % 70, 1, 1 + number % 999): 1 + number % 3 for number in range(4000)}
    for policy in (PlacementPolicy.FGD, PlacementPolicy.PRICED):
        ranking = ranking_of(policy, crowd.items())
        fleet = fleet_of(Model({"a": NodeShape("a", 99, 99, 4, "t4")}))
        ranking.reconsider(fleet)
        assert ranking.choose(fleet, Task(1, 1, 1, 333)) == Spot("a", (0,))
    assert len(usual_tasks(crowd)) == 256


@pytest.mark.parametrize("policy", [PlacementPolicy.FGD, PlacementPolicy.PRICED])
def test_nodes_are_alike_only_where_the_memory_of_their_cards_is(policy: PlacementPolicy) -> None:
    model = Model({name: NodeShape(name, 9, 9, 2, "t4", 10) for name in "ab"})
    model.taken["1"] = Task(0, 0, 1, 450, 8), Spot("a", (0,))
    model.taken["2"] = Task(0, 0, 1, 450, 0), Spot("b", (0,))
    fleet = fleet_of(model)
    ranking = ranking_of(policy, {Task(0, 0, 1, 600): 1, Task(0, 0, 1, 1000): 1}.items())
    ranking.reconsider(fleet)
    at = np.array([fleet.position("a"), fleet.position("b")])
    small, large = (ranking.scores(fleet, Task(0, 0, 1, 500, memory), at) for memory in (2, 5))
    assert small[0] == small[1]
    assert large[0] < large[1], "on a, the card that is in use has too little memory"

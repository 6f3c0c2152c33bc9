"""All nodes as arrays: the same as plain dictionaries would say, whatever happens in whatever order."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pod_scheduling.domain.placement.fleet import Fleet, Obstacle, ObstacleKind
from pod_scheduling.domain.placement.tasks import NodeShape, Spot, Task
from tests.examples import examples
from tests.unit.pod_scheduling.domain.placement.fleets import NAMES, Model, shapes, tasks

# Few, so that they meet.
NODES = NAMES[:2]
KEYS = tuple("12345678")
KIND_OF_LACK = {
    ObstacleKind.CPU: lambda task: task.cpu_milli,
    ObstacleKind.MEMORY: lambda task: task.memory_mib,
    ObstacleKind.CARDS: lambda task: task.cards,
    ObstacleKind.CARD_SHARE: lambda task: task.card_milli,
    ObstacleKind.CARD_MEMORY: lambda task: task.card_memory,
}


class Fleets(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet()
        self.model = Model()
        self.changes: dict[int, int] = {}

    @rule(shape=shapes(NODES))
    def put(self, shape: NodeShape) -> None:
        self.fleet.put(shape)
        self.model.shapes[shape.name] = shape

    @rule(name=st.sampled_from(NODES))
    def drop(self, name: str) -> None:
        at, before = self.fleet.position(name), self.fleet.changes.copy()
        self.fleet.drop(name)
        assert self.fleet.changes.sum() == before.sum() + (at is not None)
        self.model.shapes.pop(name, None)

    @rule(
        key=st.sampled_from(KEYS),
        task=tasks,
        node=st.sampled_from(NODES),
        cards=st.permutations(range(6)),
    )
    def take(self, key: str, task: Task, node: str, cards: list[int]) -> None:
        spot = Spot(node, tuple(sorted(cards[: task.cards])))
        self.fleet.take(key, task, spot)
        self.model.taken[key] = (task, spot)

    @rule(key=st.sampled_from(KEYS))
    def take_again(self, key: str) -> None:
        if key in self.model.taken:
            before = self.fleet.changes.copy()
            self.fleet.take(key, *self.model.taken[key])
            assert (before == self.fleet.changes).all()

    @rule(key=st.sampled_from(KEYS))
    def give_back(self, key: str) -> None:
        self.fleet.give_back(key)
        self.model.taken.pop(key, None)

    @rule(task=tasks, cards_only=st.booleans(), nodes=st.none() | st.permutations((*NODES, "nobody")))
    def ask(self, task: Task, cards_only: bool, nodes: list[str] | None) -> None:
        fitting = self.fleet.fitting(task, nodes, cards_only=cards_only)
        names = [self.fleet.name_at(int(position)) for position in fitting]
        expected = [node for node in nodes or NODES if self.model.has_room(task, node, cards_only=cards_only)]
        assert names == expected if nodes else sorted(names) == expected
        for name in (*NODES, "nobody"):
            obstacle = self.fleet.obstacle(task, name, cards_only=cards_only)
            assert (obstacle is None) == (name in expected)
            if obstacle is not None and obstacle.kind in KIND_OF_LACK:
                assert obstacle.free < obstacle.wanted == KIND_OF_LACK[obstacle.kind](task)

    @invariant()
    def says_what_is_free(self) -> None:
        assert set(self.fleet) == set(self.model.shapes)
        assert len(self.fleet) == len(self.model.shapes) == self.fleet.alive.sum()
        assert {key: spot for key, (_, spot) in self.fleet._spots.items()} == {
            key: spot for key, (_, spot) in self.model.taken.items()
        }
        for name in self.model.shapes:
            at = self.fleet.position(name)
            assert at is not None
            cpu, memory, milli, card_memory = self.model.free(name)
            width = len(milli)
            assert (self.fleet.cpu_free[at], self.fleet.memory_free[at]) == (cpu, memory)
            assert self.fleet.milli_free[at].tolist()[:width] == milli
            assert not self.fleet.milli_free[at, width:].any()
            assert self.fleet.card_memory_free[at].tolist()[:width] == card_memory
            # A share of nothing does not exist, so that a card with all of its thousandths is nobody's.
            assert self.fleet.whole_free[at] == milli.count(1000)

    @invariant()
    def changes_are_counted(self) -> None:
        for at, before in self.changes.items():
            assert self.fleet.changes[at] >= before
        self.changes = dict(enumerate(self.fleet.changes.tolist()))


TestFleets = Fleets.TestCase
TestFleets.settings = examples(60, stateful_step_count=30)


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_a_position_is_used_again_and_never_looks_the_same(puts: list[bool]) -> None:
    fleet = Fleet()
    seen: dict[int, int] = {}
    for number, put in enumerate(puts):
        if put or not len(fleet):
            fleet.put(NodeShape(f"n{number}", 10, 10, 2, "t4"))
            at = fleet.position(f"n{number}")
            assert at is not None
            assert fleet.changes[at] > seen.get(at, 0)
        else:
            fleet.drop(next(iter(fleet)))
        seen.update(enumerate(fleet.changes.tolist()))
    assert len(fleet.shapes) <= max(16, 2 * len(puts))


def test_why_a_task_does_not_fit_is_said_with_numbers() -> None:
    fleet = Fleet()
    fleet.put(NodeShape("a", 8_000, 1_000, 2, "t4", card_memory=16))
    fleet.take("1", Task(2_000, 100, 1, 700, card_memory=10), Spot("a", (0,)))
    fleet.take("2", Task(2_000, 100, 1, 400, card_memory=10), Spot("a", (1,)))
    said = {
        Task(0, 0, 1): Obstacle(ObstacleKind.CARDS, 1, 0, "t4"),
        Task(0, 0, 1, 650): Obstacle(ObstacleKind.CARD_SHARE, 650, 600, "t4"),
        Task(0, 0, 1, 600, card_memory=7): Obstacle(ObstacleKind.CARD_MEMORY, 7, 6, "t4"),
        Task(4_001, 0, 1, 600): Obstacle(ObstacleKind.CPU, 4_001, 4_000, "t4"),
        Task(4_000, 801, 0): Obstacle(ObstacleKind.MEMORY, 801, 800, "t4"),
        Task(0, 0, 1, 100, gpu_types=frozenset({"h100"})): Obstacle(ObstacleKind.GPU_TYPE, gpu_type="t4"),
    }
    assert {task: fleet.obstacle(task, "a") for task in said} == said
    assert fleet.obstacle(Task(0, 0, 0), "b") == Obstacle(ObstacleKind.UNKNOWN_NODE)
    assert fleet.obstacle(Task(0, 0, 1, 600, card_memory=6), "a") is None


def test_what_is_taken_on_a_node_counts_as_soon_as_it_is_there() -> None:
    fleet = Fleet()
    fleet.take("1", Task(3, 3, 2), Spot("a", (0, 2)))
    fleet.put(NodeShape("a", 10, 10, 3, "t4"))
    assert fleet.milli_free[fleet.position("a")].tolist() == [0, 1000, 0]
    fleet.drop("a")
    fleet.put(NodeShape("a", 10, 10, 4, "t4"))
    assert fleet.milli_free[fleet.position("a")].tolist() == [0, 1000, 0, 1000]
    assert np.flatnonzero(fleet.cpu_free).tolist() == [fleet.position("a")]
    assert fleet.cpu_free[fleet.position("a")] == 7


@given(
    taken=st.lists(
        st.tuples(
            st.sampled_from(
                [Task(3, 3, 1, milli, card_memory=of_card) for milli in (300, 500, 700) for of_card in (0, 4)]
            )
            | st.sampled_from([Task(3, 3, 0), Task(3, 3, 1), Task(3, 3, 2)]),
            st.lists(st.sampled_from((0, 0, 1, 3)), min_size=2, max_size=2),
        ),
        max_size=8,
    ),
    card_memory=st.sampled_from((0, 10)),
    cpu=st.sampled_from((7, 100)),
    memory=st.sampled_from((7, 100)),
)
def test_taking_off_is_counting_anew(
    taken: list[tuple[Task, list[int]]], card_memory: int, cpu: int, memory: int
) -> None:
    """Also where more is taken than there is, from cards that are not there, or twice from one."""
    shape = NodeShape("a", cpu, memory, 3, "t4", card_memory=card_memory)
    taking_off, counting_anew = Fleet(), Fleet()
    taking_off.put(shape)
    for number, (task, cards) in enumerate(taken):
        for fleet in (taking_off, counting_anew):
            fleet.take(str(number), task, Spot("a", tuple(cards[: task.cards])))
    counting_anew.put(shape)
    at, anew = taking_off.position("a"), counting_anew.position("a")
    assert at is not None
    assert anew is not None
    assert taking_off.state_at(at) == counting_anew.state_at(anew)
    assert taking_off.whole_free[at] == counting_anew.whole_free[anew]


def test_exactly_what_is_left_fits() -> None:
    fleet = Fleet()
    fleet.put(NodeShape("a", 8, 8, 2, "t4", card_memory=8))
    assert fleet.fitting(Task(8, 8, 2)).tolist() == [0]
    assert fleet.fitting(Task(8, 8, 1, 999, card_memory=8)).tolist() == [0]
    assert not len(fleet.fitting(Task(9, 8, 2)))
    assert not len(fleet.fitting(Task(8, 9, 2)))

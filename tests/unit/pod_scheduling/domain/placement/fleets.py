"""Small fleets and tasks, drawn, and what is free on them worked out by hand."""

from dataclasses import dataclass, field

from hypothesis import strategies as st

from pod_scheduling.domain.placement.fleet import Fleet
from pod_scheduling.domain.placement.tasks import WHOLE, NodeShape, Spot, Task

TYPES = ("a100", "h100", "t4")
NAMES = tuple("abcdef")

types = st.none() | st.frozensets(st.sampled_from(TYPES), min_size=1, max_size=2)
needs = {"cpu_milli": st.integers(0, 12), "memory_mib": st.integers(0, 12)}
# Few sizes, so that they meet; and some that nothing else fits beside.
shares = st.builds(
    Task,
    **needs,
    cards=st.just(1),
    card_milli=st.sampled_from((50, 190, 250, 333, 470, 500, 810, 999)),
    card_memory=st.sampled_from((0, 0, 3, 8)),
    gpu_types=types,
)
whole = st.builds(Task, **needs, cards=st.integers(1, 5), gpu_types=types)
without_cards = st.builds(Task, **needs, cards=st.just(0))
tasks = shares | whole | without_cards


def shapes(names: tuple[str, ...] = NAMES) -> st.SearchStrategy[NodeShape]:
    return st.builds(
        NodeShape,
        st.sampled_from(names),
        cpu_milli=st.integers(0, 40),
        memory_mib=st.integers(0, 40),
        cards=st.integers(0, 5),
        gpu_type=st.sampled_from(TYPES),
        card_memory=st.sampled_from((0, 10)),
    )


nodes = st.lists(shapes(), min_size=1, max_size=6, unique_by=lambda shape: shape.name)


@dataclass
class Model:
    """What a fleet should say, from plain dictionaries."""

    shapes: dict[str, NodeShape] = field(default_factory=dict)
    taken: dict[str, tuple[Task, Spot]] = field(default_factory=dict)

    def free(self, name: str) -> tuple[int, int, list[int], list[int]]:
        """Processor time, memory, thousandths of each card, memory of each card."""
        shape = self.shapes[name]
        cpu, memory = shape.cpu_milli, shape.memory_mib
        milli, card_memory = [WHOLE] * shape.cards, [shape.card_memory] * shape.cards
        for task, spot in self.taken.values():
            if spot.node == name:
                cpu -= task.cpu_milli
                memory -= task.memory_mib
                for card in spot.cards:
                    if card < shape.cards:
                        milli[card] -= task.card_milli
                        card_memory[card] -= shape.card_memory if task.card_milli == WHOLE else task.card_memory
        return (
            max(cpu, 0),
            max(memory, 0),
            [max(amount, 0) for amount in milli],
            [max(amount, 0) for amount in card_memory],
        )

    def cards_for(self, task: Task, name: str) -> list[int]:
        """The cards of a node that would do for a task."""
        _, _, milli, card_memory = self.free(name)
        return [
            card
            for card, (free, memory) in enumerate(zip(milli, card_memory, strict=True))
            if free >= task.card_milli and (task.card_milli == WHOLE or memory >= task.card_memory)
        ]

    def has_room(self, task: Task, name: str, *, cards_only: bool = False) -> bool:
        if name not in self.shapes:
            return False
        cpu, memory, _, _ = self.free(name)
        if task.cards:
            if task.gpu_types is not None and self.shapes[name].gpu_type not in task.gpu_types:
                return False
            if len(self.cards_for(task, name)) < task.cards:
                return False
        return cards_only or (cpu >= task.cpu_milli and memory >= task.memory_mib)


def fleet_of(model: Model) -> Fleet:
    fleet = Fleet()
    for shape in model.shapes.values():
        fleet.put(shape)
    for key, (task, spot) in model.taken.items():
        fleet.take(key, task, spot)
    return fleet

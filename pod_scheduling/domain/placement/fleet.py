"""All nodes and what is taken on them, as arrays, so that thousands of nodes are looked at in one step.

A node has a position, which it keeps until it is dropped; arrays are indexed by it. Positions that no node has are not
`alive`, and have nothing free. Cards that a node does not have are columns with nothing free.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from pod_scheduling.domain.placement.tasks import WHOLE, NodeShape, Spot, Task

Positions = NDArray[np.intp]
Amounts = NDArray[np.int64]
State = tuple[int, int, int, bytes, bytes]
"""All of a node that any outcome depends on."""


class ObstacleKind(StrEnum):
    """What a node lacks for a task."""

    UNKNOWN_NODE = "unknown_node"
    GPU_TYPE = "gpu_type"
    CARDS = "cards"
    CARD_SHARE = "card_share"
    CARD_MEMORY = "card_memory"
    CPU = "cpu"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a task does not fit on a node: what it wants of what is lacking, and what the node has free of that.

    Whole cards for CARDS; thousandths of the card that has most free for CARD_SHARE; units of memory on the card that
    has most free, of those with a large enough share, for CARD_MEMORY; thousandths of cores for CPU; MiB for MEMORY.
    `gpu_type` is the node's. With the kind UNKNOWN_NODE or GPU_TYPE the numbers are 0.
    """

    kind: ObstacleKind
    wanted: int = 0
    free: int = 0
    gpu_type: str = ""


class Fleet:
    """Nodes, and what is taken on them.

    Others may put more on a node than it has: then nothing is free there, and what is given back first only lessens the
    excess. Usage on an absent node counts as soon as the node is there.
    """

    def __init__(self) -> None:
        self.alive: NDArray[np.bool_] = np.zeros(0, bool)
        self.cpu: Amounts = _amounts(0)
        """Thousandths of cores that a node has when nobody is on it."""
        self.memory: Amounts = _amounts(0)
        """MiB that a node has when nobody is on it."""
        self.cards: Amounts = _amounts(0)
        self.card_memory: Amounts = _amounts(0)
        """Units of memory on each card of a node."""
        self.gpu_type: NDArray[np.intp] = np.zeros(0, np.intp)
        """Which of `gpu_types`."""
        self.cpu_free: Amounts = _amounts(0)
        self.memory_free: Amounts = _amounts(0)
        self.milli_free: Amounts = _amounts(0, 1)
        """Thousandths that are free of each card, by node and index."""
        self.card_memory_free: Amounts = _amounts(0, 1)
        self.whole_free: Amounts = _amounts(0)
        """Cards of which nobody has anything."""
        self.changes: Amounts = _amounts(0)
        """Grows whenever anything about a node changes; never goes back, even when another node gets the position."""
        self.gpu_types: list[str] = []
        self.shapes: list[NodeShape | None] = []
        self.layout = 0
        """Grows whenever a node gets a position, or loses it."""
        self._positions: dict[str, int] = {}
        self._vacant: list[int] = []
        self._spots: dict[str, tuple[Task, Spot]] = {}
        self._on_node: dict[str, dict[str, tuple[Task, Spot]]] = {}

    def __len__(self) -> int:
        return len(self._positions)

    def __iter__(self) -> Iterator[str]:
        return iter(self._positions)

    def put(self, shape: NodeShape) -> None:
        """Add a node or change its shape. Its usage stays."""
        position = self._positions.get(shape.name)
        if position is None:
            position = self._new_position()
            self._positions[shape.name] = position
            self.layout += 1
        self._widen(shape.cards)
        if shape.gpu_type not in self.gpu_types:
            self.gpu_types.append(shape.gpu_type)
        self.shapes[position] = shape
        self.alive[position] = True
        self.cpu[position] = shape.cpu_milli
        self.memory[position] = shape.memory_mib
        self.cards[position] = shape.cards
        self.card_memory[position] = shape.card_memory
        self.gpu_type[position] = self.gpu_types.index(shape.gpu_type)
        self._count(position)

    def drop(self, name: str) -> None:
        """Remove a node. Its usage is kept until it is given back."""
        position = self._positions.pop(name, None)
        if position is None:
            return
        self.layout += 1
        self.shapes[position] = None
        self.alive[position] = False
        for array in (self.cpu, self.memory, self.cards, self.card_memory, self.cpu_free, self.memory_free):
            array[position] = 0
        self.whole_free[position] = 0
        self.milli_free[position] = 0
        self.card_memory_free[position] = 0
        self.changes[position] += 1
        self._vacant.append(position)

    def take(self, key: str, task: Task, spot: Spot) -> None:
        """Take a spot for `key`. The same spot again changes nothing; another one replaces it.

        Indices of cards that the node does not have take nothing.
        """
        now = (task, spot)
        if self._spots.get(key) == now:
            return
        self.give_back(key)
        self._spots[key] = now
        self._on_node.setdefault(spot.node, {})[key] = now
        position = self._positions.get(spot.node)
        if position is not None and not self._counted_off(position, task, spot):
            self._count(position)

    def give_back(self, key: str) -> None:
        """Give back the spot of a key. Unknown keys are ignored."""
        taken = self._spots.pop(key, None)
        if taken is None:
            return
        node = taken[1].node
        there = self._on_node[node]
        del there[key]
        if not there:
            del self._on_node[node]
        self._recount(node)

    @property
    def positions(self) -> Mapping[str, int]:
        """Where each node stands in the arrays."""
        return self._positions

    def position(self, name: str) -> int | None:
        """Where a node stands in the arrays."""
        return self._positions.get(name)

    def name_at(self, position: int) -> str:
        """The node at a position. KeyError where there is none."""
        shape = self.shapes[position]
        if shape is None:
            raise KeyError(position)
        return shape.name

    def state_at(self, position: int) -> State:
        """Free capacity at a position, by type. Nodes of one state have the same outcomes for every task."""
        return (
            int(self.gpu_type[position]),
            int(self.cpu_free[position]),
            int(self.memory_free[position]),
            self.milli_free[position].tobytes(),
            self.card_memory_free[position].tobytes(),
        )

    def fitting(self, task: Task, nodes: Sequence[str] | None = None, *, cards_only: bool = False) -> Positions:
        """The positions of the nodes that have room for a task now, ascending; of `nodes`, in their order, if given.

        Unknown nodes never have room. `cards_only` leaves processor time and memory to somebody else.
        """
        if nodes is None:
            at = np.flatnonzero(self.alive)
        else:
            at = np.array([here for here in map(self._positions.get, nodes) if here is not None], np.intp)
        at = at[self.has_cards(task, at)]
        if cards_only:
            return at
        return at[(self.cpu_free[at] >= task.cpu_milli) & (self.memory_free[at] >= task.memory_mib)]

    def has_cards(self, task: Task, at: Positions) -> NDArray[np.bool_]:
        """Of the nodes at these positions, which have the cards that a task asks for, and of a type that it takes."""
        if task.cards == 0:
            return np.ones(len(at), bool)
        able: NDArray[np.bool_]
        if task.card_milli == WHOLE:
            able = self.whole_free[at] >= task.cards
        else:
            able = np.asarray(self.cards_for_share(task, at).any(axis=1))
        if task.gpu_types is not None:
            taken = np.array([gpu_type in task.gpu_types for gpu_type in self.gpu_types], bool)
            able = able & taken[self.gpu_type[at]]
        return able

    def cards_for_share(self, task: Task, at: Positions) -> NDArray[np.bool_]:
        """For the nodes at these positions, on which cards there is room for the share that a task asks for."""
        able: NDArray[np.bool_] = self.milli_free[at] >= task.card_milli
        if task.card_memory:
            able &= self.card_memory_free[at] >= task.card_memory
        return able

    def obstacle(self, task: Task, node: str, *, cards_only: bool = False) -> Obstacle | None:
        """Why a task does not fit on a node, None when it does: the type first, then cards, processor time, memory."""
        position = self._positions.get(node)
        if position is None:
            return Obstacle(ObstacleKind.UNKNOWN_NODE)
        kind = self.gpu_types[self.gpu_type[position]]
        if task.cards:
            if task.gpu_types is not None and kind not in task.gpu_types:
                return Obstacle(ObstacleKind.GPU_TYPE, gpu_type=kind)
            lacking = self._card_obstacle(task, position, kind)
            if lacking is not None:
                return lacking
        if not cards_only:
            cpu, memory = int(self.cpu_free[position]), int(self.memory_free[position])
            if cpu < task.cpu_milli:
                return Obstacle(ObstacleKind.CPU, task.cpu_milli, cpu, kind)
            if memory < task.memory_mib:
                return Obstacle(ObstacleKind.MEMORY, task.memory_mib, memory, kind)
        return None

    def _card_obstacle(self, task: Task, position: int, kind: str) -> Obstacle | None:
        if task.card_milli == WHOLE:
            whole = int(self.whole_free[position])
            return Obstacle(ObstacleKind.CARDS, task.cards, whole, kind) if whole < task.cards else None
        milli = self.milli_free[position]
        able = milli >= task.card_milli
        if not able.any():
            return Obstacle(ObstacleKind.CARD_SHARE, task.card_milli, int(milli.max()), kind)
        memory = int(self.card_memory_free[position][able].max())
        if memory < task.card_memory:
            return Obstacle(ObstacleKind.CARD_MEMORY, task.card_memory, memory, kind)
        return None

    def _counted_off(self, position: int, task: Task, spot: Spot) -> bool:
        """Take off what is free what somebody new has, where there is enough of all of it; whether there was."""
        shape = self.shapes[position]
        if shape is None or self.cpu_free[position] < task.cpu_milli or self.memory_free[position] < task.memory_mib:
            return False
        taken = shape.card_memory if task.card_milli == WHOLE else task.card_memory
        milli, memory = self.milli_free[position], self.card_memory_free[position]
        if len(spot.cards) > 1 and len({*spot.cards}) < len(spot.cards):
            return False
        for card in spot.cards:
            if card >= shape.cards or milli[card] < task.card_milli or memory[card] < taken:
                return False
        for card in spot.cards:
            self.whole_free[position] -= milli[card] == WHOLE and task.card_milli > 0
            milli[card] -= task.card_milli
            memory[card] -= taken
        self.cpu_free[position] -= task.cpu_milli
        self.memory_free[position] -= task.memory_mib
        self.changes[position] += 1
        return True

    def _recount(self, node: str) -> None:
        position = self._positions.get(node)
        if position is not None:
            self._count(position)

    def _count(self, position: int) -> None:
        """Work out what is free on a node from all that is taken on it."""
        shape = self.shapes[position]
        if shape is None:
            raise KeyError(position)
        cpu, memory = shape.cpu_milli, shape.memory_mib
        milli = [WHOLE] * shape.cards
        card_memory = [shape.card_memory] * shape.cards
        for task, spot in self._on_node.get(shape.name, {}).values():
            cpu -= task.cpu_milli
            memory -= task.memory_mib
            taken = shape.card_memory if task.card_milli == WHOLE else task.card_memory
            for card in spot.cards:
                if card < shape.cards:
                    milli[card] -= task.card_milli
                    card_memory[card] -= taken
        self.cpu_free[position] = max(cpu, 0)
        self.memory_free[position] = max(memory, 0)
        self.milli_free[position] = 0
        self.milli_free[position, : shape.cards] = [max(amount, 0) for amount in milli]
        self.card_memory_free[position] = 0
        self.card_memory_free[position, : shape.cards] = [max(amount, 0) for amount in card_memory]
        self.whole_free[position] = milli.count(WHOLE)
        self.changes[position] += 1

    def _new_position(self) -> int:
        if not self._vacant:
            size = len(self.shapes)
            more = max(16, size)
            self.shapes.extend([None] * more)
            self._vacant.extend(range(size + more - 1, size - 1, -1))
            for name in (*_BY_NODE, *_BY_CARD):
                here = getattr(self, name)
                setattr(self, name, np.concatenate([here, np.zeros((more, *here.shape[1:]), here.dtype)]))
        return self._vacant.pop()

    def _widen(self, cards: int) -> None:
        missing = cards - self.milli_free.shape[1]
        if missing > 0:
            for name in _BY_CARD:
                setattr(self, name, np.pad(getattr(self, name), ((0, 0), (0, missing))))


_BY_NODE = (
    "alive", "cpu", "memory", "cards", "card_memory", "gpu_type", "cpu_free", "memory_free", "whole_free", "changes",
)  # fmt: skip
_BY_CARD = ("milli_free", "card_memory_free")


def _amounts(*size: int) -> Amounts:
    return np.zeros(size, np.int64)

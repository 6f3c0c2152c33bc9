"""Replaying a cluster trace: tasks arrive one after the other, a policy places them, nothing leaves.

As in the paper that published the trace (Weng et al., USENIX ATC 2023): the tasks of the trace in random order, then
further ones drawn from it with replacement, until the cards that are asked for are `LOAD` of those that there are; or
fewer, if the trace asks for more.
"""

import csv
import os
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pod_scheduling.domain.placement.fleet import Fleet
from pod_scheduling.domain.placement.rankings import ranking_of
from pod_scheduling.domain.placement.tasks import WHOLE, NodeShape, Spot, Task
from reservation_core.domain.cards.placement_policies import PlacementPolicy

LOAD = 1.3
_NEWS = 1 / 4
"""A policy reconsiders when so much has arrived since, in parts of what had before."""

FOLDER_VARIABLE = "OPENB_FOLDER"
_FOLDER = Path(__file__).parents[3] / "shared" / "data" / "openb"
_NODES = "openb_node_list_gpu_node.csv"


@dataclass(frozen=True, slots=True)
class Trace:
    """Nodes, and the tasks that ran on them."""

    name: str
    nodes: tuple[NodeShape, ...]
    tasks: tuple[Task, ...]

    @property
    def capacity(self) -> int:
        """Thousandths of cards."""
        return WHOLE * sum(node.cards for node in self.nodes)


@dataclass(frozen=True, slots=True)
class Course:
    """What came of a replay: `allocated[p]` is the share of all cards that was allocated, in per cent, when those asked
    for had reached p per cent of those that there are."""

    allocated: tuple[float, ...]
    refused: int


def trace_folder() -> Path:
    """Where the trace is. SystemExit with what to do where it isn't."""
    folder = Path(os.environ.get(FOLDER_VARIABLE, _FOLDER))
    if not (folder / _NODES).exists():
        raise SystemExit(
            f"There is no trace in {folder}. Set {FOLDER_VARIABLE} to a folder with {_NODES} and openb_pod_list_*.csv, "
            "the directory data/csv of https://github.com/hkust-adsl/kubernetes-scheduler-simulator."
        )
    return folder


def load(name: str) -> Trace:
    """A trace of that folder: `default`, `multigpu50` or any other `openb_pod_list_<name>.csv`."""
    folder = trace_folder()
    with (folder / _NODES).open() as rows:
        nodes = tuple(
            NodeShape(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"])
            for row in csv.DictReader(rows)
        )
    with (folder / f"openb_pod_list_{name}.csv").open() as rows:
        tasks = tuple(map(_task, csv.DictReader(rows)))
    return Trace(name, nodes, tasks)


def _task(row: dict[str, str]) -> Task:
    cards = int(row["num_gpu"])
    types = frozenset(filter(None, (row.get("gpu_spec") or "").split("|")))
    milli = int(row["gpu_milli"]) if cards else WHOLE
    return Task(int(row["cpu_milli"]), int(row["memory_mib"]), cards, milli, gpu_types=types or None)


def asked(task: Task) -> int:
    """Thousandths of cards that a task asks for."""
    return task.cards * task.card_milli


def arrivals(trace: Trace, seed: int) -> list[Task]:
    """The tasks in the order in which they come."""
    dice = random.Random(seed)
    tasks = list(trace.tasks)
    dice.shuffle(tasks)
    goal = LOAD * trace.capacity
    total = sum(map(asked, tasks))
    while total > goal:
        total -= asked(tasks.pop())
    while True:
        task = dice.choice(trace.tasks)
        total += asked(task)
        if total > goal:
            return tasks
        tasks.append(task)


def replay(trace: Trace, policy: PlacementPolicy, seed: int, *, history: bool) -> Course:
    """One replay. With `history` the policy knows beforehand how often each kind of task comes; else it learns.

    AssertionError when a task is put where there is no room, or refused though there is.
    """
    fleet = Fleet()
    for node in trace.nodes:
        fleet.put(node)
    books = _Books(trace.nodes)
    ranking = ranking_of(policy, Counter(trace.tasks).items() if history else ())
    if history:
        ranking.reconsider(fleet)
    arrived = allocated = refused = considered = 0
    course: list[float] = []
    for number, task in enumerate(arrivals(trace, seed)):
        if not history:
            if number - considered > considered * _NEWS:
                ranking.reconsider(fleet)
                considered = number
            ranking.learn(task)
        arrived += asked(task)
        spot = ranking.choose(fleet, task)
        if spot is None:
            refused += 1
            assert not books.have_room(task), f"{task} was refused, and there is room"
        else:
            books.take(task, spot)
            fleet.take(str(number), task, spot)
            allocated += asked(task)
        while arrived >= len(course) * trace.capacity / 100:
            course.append(100 * allocated / trace.capacity)
    course.append(100 * allocated / trace.capacity)
    return Course(tuple(course), refused)


class _Books:
    """Free capacity, kept apart from the code that is measured."""

    def __init__(self, nodes: Sequence[NodeShape]) -> None:
        self._types = np.array([node.gpu_type for node in nodes])
        self._rows = {node.name: row for row, node in enumerate(nodes)}
        self._cpu = np.array([node.cpu_milli for node in nodes])
        self._memory = np.array([node.memory_mib for node in nodes])
        most = max(node.cards for node in nodes)
        self._free = np.array([[WHOLE] * node.cards + [0] * (most - node.cards) for node in nodes])

    def have_room(self, task: Task) -> bool:
        """Whether any node has."""
        able = (self._cpu >= task.cpu_milli) & (self._memory >= task.memory_mib)
        if task.cards:
            able &= (self._free >= task.card_milli).sum(axis=1) >= task.cards
            if task.gpu_types is not None:
                able &= np.isin(self._types, list(task.gpu_types))
        return bool(able.any())

    def take(self, task: Task, spot: Spot) -> None:
        """AssertionError where there is no room."""
        row = self._rows[spot.node]
        cards = list(spot.cards)
        assert len(set(cards)) == task.cards, f"{task} got {spot}"
        assert task.gpu_types is None or not cards or self._types[row] in task.gpu_types, f"{task} got {spot}"
        self._cpu[row] -= task.cpu_milli
        self._memory[row] -= task.memory_mib
        self._free[row, cards] -= task.card_milli
        assert min(self._cpu[row], self._memory[row], *self._free[row]) >= 0, f"{task} has no room on {spot}"

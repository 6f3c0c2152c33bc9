"""A planning pass from nothing, in memory on one core: 10,000 waiting jobs get their slots among 5,000 bookings.

4,000 nodes of 8 cards in three types, every card running something; jobs of one card to gangs of sixteen whole nodes,
some for any type, with lengths of ten minutes to a day; bookings of the next two weeks on one node or up to four. How
the time grows is measured by halving the line, and by halving the cluster with everything in it. Then jobs on one node
end early, and slots are moved to earlier times in parts of 2 ms until none can be. Half the cluster is planned once
more with nodes that say their CPUs and memory, for the same jobs, which ask for none of these.
"""

import gc
import random
import time
from datetime import UTC, datetime, timedelta

from benchmarks.measuring.figures import Figure
from benchmarks.measuring.references import LOOP, against, loop_ms
from reservation_core.domain.model import Gpu, Node
from reservation_core.domain.plan import Commitment, PlanningSnapshot, Waiting
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.slot_decisions import USED, plan_slots
from reservation_core.domain.planning.start_decisions import plan_starts
from reservation_core.runtime.processes.garbage import calm_garbage_collector

JOBS = 10_000
BOOKINGS = 5_000
NODES = 4_000
ROUNDS = 3
NOW = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TYPES = ("a100", "h100", "t4")
CPUS, MEMORY = 128_000, 2**40
"""Of each node, in thousandths of a CPU and in bytes."""
PART = 0.002
"""The time of a part of the work, in seconds."""


def measure() -> list[Figure]:
    """Each round in a new world."""
    calm_garbage_collector(in_small_parts=True)  # as the processor does
    whole, half_line, half_cluster, with_cpus, loops, improving, slices = [], [], [], [], [], [], []
    for seed in range(ROUNDS):
        loops.append(loop_ms(time.process_time) / 1000)
        picture = world(seed, NODES, BOOKINGS, JOBS)
        whole.append(_pass(picture, JOBS))
        improved, longest = _improve(picture, seed)
        improving.append(improved / whole[-1])
        slices.append(longest * 1000)
        half_line.append(_pass(world(seed, NODES, BOOKINGS, JOBS // 2), JOBS // 2))
        half_cluster.append(_pass(world(seed, NODES // 2, BOOKINGS // 2, JOBS // 2), JOBS // 2))
        with_cpus.append(_pass(world(seed, NODES // 2, BOOKINGS // 2, JOBS // 2, CPUS, MEMORY), JOBS // 2))
    line = [a / b for a, b in zip(whole, half_line, strict=True)]
    cluster = [a / b for a, b in zip(whole, half_cluster, strict=True)]
    counted = [a / b for a, b in zip(with_cpus, half_cluster, strict=True)]
    middle = ROUNDS // 2
    medians = [sorted(samples)[middle] for samples in (half_line, half_cluster)]
    detail = f"half the line takes {medians[0]:.2f} s, half of everything {medians[1]:.2f} s"
    return [
        against(
            "planning 10,000 jobs, 5,000 bookings, 32,000 GPUs", whole, loops, 80, unit=" s", of=LOOP, detail=detail
        ),
        Figure("planning twice the line", "x", line, 2.5, at_least=False),
        Figure("planning twice the line, the bookings and the cluster", "x", cluster, 2.5, at_least=False),
        Figure("planning where nodes say their CPUs and memory ÷ where they don't", "x", counted, 1.1, at_least=False),
        Figure("improving 10,000 slots after a release ÷ a planning pass", "x", improving, 0.1, at_least=False),
        Figure("the longest part of it", " ms", slices, 2, at_least=False),
    ]


def _improve(picture: Picture, seed: int) -> tuple[float, float]:
    """The processor time of moving slots to earlier times after jobs of a node ended, and of its longest part."""
    number = random.Random(seed).randrange(NODES) * 8
    now = NOW + MINUTE / 60
    for gpu_id in range(number, number + (1, 4, 8)[seed % 3]):
        picture.set_reservation(f"job-r{gpu_id}", None, ())
    gc.collect(1)  # what the pass made at once, and a planner in parts
    total = longest = 0.0
    more = True
    while more:
        plan_starts(picture, now, JOBS)
        began = time.process_time()
        more = plan_slots(picture, now, JOBS, JOBS, lambda: time.process_time() - began >= PART * USED).more  # noqa: B023 - at once
        part = time.process_time() - began
        total += part
        longest = max(longest, part)
    return total, longest


def _pass(picture: Picture, jobs: int) -> float:
    started = time.process_time()
    starts = plan_starts(picture, NOW, jobs)
    plan = plan_slots(picture, NOW, jobs, jobs)
    while plan.more and len(plan.slots) + len(starts) < jobs:
        starts += plan_starts(picture, NOW, jobs)
        plan = plan_slots(picture, NOW, jobs, jobs)
    return time.process_time() - started


def world(
    seed: int, nodes: int, bookings: int, jobs: int, cpu_milli: int | None = None, memory: int | None = None
) -> Picture:
    """A cluster in which every card is taken, with bookings and a line; its nodes have so much beside their cards."""
    chance = random.Random(seed)
    inventory = [
        Node(
            f"n{number:05}",
            tuple(Gpu(number * 8 + index, f"n{number:05}", index, TYPES[number % 3]) for index in range(8)),
            cpu_milli=cpu_milli,
            memory_bytes=memory,
        )
        for number in range(nodes)
    ]
    rows = []
    for node_state in inventory:
        cards = list(node_state.gpus)
        while cards:
            part = [cards.pop() for _ in range(min(len(cards), chance.choice((1, 2, 4, 8))))]
            end = NOW + chance.randrange(5, 24 * 60) * MINUTE
            rows += [Commitment(f"job-r{gpu.id}", gpu.id, NOW - 60 * MINUTE, end, True) for gpu in part]
    rows += _bookings(chance, inventory, bookings)
    waiting = tuple(_job(chance, seq) for seq in range(1, jobs + 1))
    return Picture(PlanningSnapshot(tuple(inventory), tuple(rows), waiting, frozenset({None, *TYPES})))


def _bookings(chance: random.Random, inventory: list[Node], count: int) -> list[Commitment]:
    taken: dict[int, list[tuple[datetime, datetime]]] = {}
    rows: list[Commitment] = []
    made = 0
    while made < count:
        start = NOW + chance.randrange(24 * 60, 14 * 24 * 60) * MINUTE
        end = start + chance.randrange(60, 12 * 60) * MINUTE
        first = chance.randrange(len(inventory))
        some = inventory[first : first + chance.choice((1, 1, 1, 4))]
        cards = [gpu for node_state in some for gpu in node_state.gpus[: chance.choice((1, 2, 4, 8))]]
        if any(a < end and start < b for gpu in cards for a, b in taken.get(gpu.id, ())):
            continue
        for gpu in cards:
            taken.setdefault(gpu.id, []).append((start, end))
            rows.append(Commitment(f"bkg-{made}", gpu.id, start, end, False))
        made += 1
    return rows


def _job(chance: random.Random, seq: int) -> Waiting:
    gang = chance.random() < 0.1
    return Waiting(
        f"job-{seq}",
        8 if gang else chance.choice((1, 1, 1, 2, 4, 8)),
        chance.choice((2, 2, 4, 8, 16)) if gang else 1,
        chance.choice((*TYPES, *TYPES, *TYPES, None)),
        chance.randrange(10, 24 * 60) * MINUTE,
        0,
        seq,
    )

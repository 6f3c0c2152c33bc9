"""How long one look at all nodes takes: for a kind of task that comes again and again, and for one never seen."""

import random
import time
from collections import Counter

from benchmarks.measuring.figures import Figure
from benchmarks.measuring.references import LOOP, against, loop_ms
from benchmarks.placement.fragmentation_replay import Trace, arrivals, load
from pod_scheduling.domain.placement.fleet import Fleet
from pod_scheduling.domain.placement.ranking import Ranking
from pod_scheduling.domain.placement.rankings import ranking_of
from pod_scheduling.domain.placement.tasks import Task
from reservation_core.domain.cards.placement_policies import DEFAULT_POLICY, PlacementPolicy

_LOOKS = 400


def look_up_times() -> list[Figure]:
    """With the cluster half full, spread so that every node has room and hardly two are alike."""
    trace = load("default")
    fleet, ranking = _half_full(trace)
    dice = random.Random(1)
    for task in set(trace.tasks):
        _look(fleet, ranking, task)
    known, unseen = [], []
    for number in range(_LOOKS):
        task = dice.choice(trace.tasks)
        known.append(_look(fleet, ranking, task))
        spot = ranking.choose(fleet, task)
        if spot is not None:
            fleet.take(f"look-{number}", task, spot)
        unseen.append(
            _look(
                fleet,
                ranking,
                Task(dice.randrange(1, 16_000), dice.randrange(1, 60_000), 1, 10 * dice.randrange(1, 100)),
            )
        )
    name, loop = "fitting and scores of 1,213 nodes", [loop_ms(time.process_time)]
    return [
        against(f"{name}, kind of task that came before", [_p99(known)], loop, 0.16, unit=" ms", of=LOOP),
        against(f"{name}, share never asked for before", [_p99(unseen)], loop, 0.27, unit=" ms", of=LOOP),
    ]


def _half_full(trace: Trace) -> tuple[Fleet, Ranking]:
    fleet = Fleet()
    for node in trace.nodes:
        fleet.put(node)
    ranking = ranking_of(DEFAULT_POLICY, Counter(trace.tasks).items())
    ranking.reconsider(fleet)
    spread = ranking_of(PlacementPolicy.SPREAD)
    tasks = arrivals(trace, 42)
    for number, task in enumerate(tasks[: len(tasks) * 2 // 5]):
        spot = spread.choose(fleet, task)
        if spot is not None:
            fleet.take(str(number), task, spot)
    return fleet, ranking


def _look(fleet: Fleet, ranking: Ranking, task: Task) -> float:
    started = time.process_time()
    ranking.scores(fleet, task, fleet.fitting(task))
    return 1_000 * (time.process_time() - started)


def _p99(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.99)]

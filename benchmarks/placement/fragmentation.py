"""How much of all cards is allocated on a public trace, by policy, when 130 % have been asked for.

`python -m benchmarks.placement.fragmentation [--seeds N] [--traces NAME ...] [--plot FILE]` takes other traces and
draws the curves.
"""

import argparse
import os
import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from benchmarks.measuring.figures import Figure
from benchmarks.placement.fragmentation_plot import Panel, draw
from benchmarks.placement.fragmentation_replay import Course, load, replay
from benchmarks.placement.fragmentation_speed import look_up_times
from reservation_core.domain.cards.placement_policies import DEFAULT_POLICY, PlacementPolicy

SEEDS = range(42, 52)
CHECKPOINTS = (90, 95)


@dataclass(frozen=True, slots=True)
class Contestant:
    """A policy, and whether it knows beforehand what usually comes."""

    policy: PlacementPolicy
    history: bool

    def __str__(self) -> str:
        return self.policy if self.history or self.policy is not DEFAULT_POLICY else f"{self.policy}, learning"


BEST_FIT = Contestant(PlacementPolicy.BINPACK, history=True)
FGD = Contestant(PlacementPolicy.FGD, history=True)
OURS = Contestant(DEFAULT_POLICY, history=True)
LEARNING = Contestant(DEFAULT_POLICY, history=False)
CONTESTANTS = (BEST_FIT, FGD, OURS, LEARNING)

PUBLISHED = {"default": {BEST_FIT: 93.1, FGD: 95.4}, "multigpu50": {BEST_FIT: 95.7, FGD: 97.2}}
AT_LEAST = {"default": 96.0, "multigpu50": 97.7}

Courses = dict[tuple[str, Contestant], list[Course]]


def run(traces: Sequence[str], seeds: Sequence[int]) -> Courses:
    """All replays, side by side on all cores."""
    runs = [(trace, contestant, seed) for trace in traces for contestant in CONTESTANTS for seed in seeds]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        courses = list(pool.map(_one, runs))
    results: Courses = {}
    for (trace, contestant, _), course in zip(runs, courses, strict=True):
        results.setdefault((trace, contestant), []).append(course)
    return results


def _one(run: tuple[str, Contestant, int]) -> Course:
    trace, contestant, seed = run
    return replay(load(trace), contestant.policy, seed, history=contestant.history)


def mean(courses: Sequence[Course], at: int = -1) -> float:
    """The mean share allocated in per cent, at a per cent of arrivals or at the end."""
    return statistics.mean(course.allocated[at] for course in courses)


def _line(courses: Sequence[Course]) -> str:
    last = [course.allocated[-1] for course in courses]
    steps = ", ".join(f"{mean(courses, at):.2f} at {at} %" for at in (90, 95, 100, 110))
    return f"{steps}; seeds {min(last):.2f}–{max(last):.2f}"


def figures_of(results: Courses, trace: str) -> list[Figure]:
    """The figures of one trace, with targets where there are some."""
    figures = []
    for contestant, published in PUBLISHED.get(trace, {}).items():
        courses = results[trace, contestant]
        off = abs(mean(courses) - published)
        detail = f"{mean(courses):.2f} %, published {published} %; {_line(courses)}"
        figures.append(
            Figure(f"{trace}, {contestant}: off what is published", " %", [off], 0.3, at_least=False, detail=detail)
        )
    fgd = results[trace, FGD]
    for contestant, target in ((OURS, AT_LEAST.get(trace, mean(fgd))), (LEARNING, mean(fgd))):
        courses = results[trace, contestant]
        name = f"{trace}, {contestant}: allocated at the end"
        figures.append(Figure(name, " %", [mean(courses)], target, at_least=True, detail=_line(courses)))
        lead = min(mean(courses, at) - mean(fgd, at) for at in CHECKPOINTS)
        name = f"{trace}, {contestant}: lead on fgd at {' and '.join(map(str, CHECKPOINTS))} % of arrivals, the smaller"
        figures.append(Figure(name, " %", [lead], -0.05, at_least=True))
    return figures


def measure() -> list[Figure]:
    """The two traces whose published results are known, ten seeds each; and how long a look takes."""
    traces = list(PUBLISHED)
    results = run(traces, SEEDS)
    return [figure for trace in traces for figure in figures_of(results, trace)] + look_up_times()


def main(arguments: Sequence[str]) -> None:
    """Run, print, draw."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.placement.fragmentation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many seeds, from 42")
    parser.add_argument("--traces", nargs="+", default=list(PUBLISHED), metavar="NAME")
    parser.add_argument("--plot", type=Path, help="where to draw the curves, as SVG")
    chosen = parser.parse_args(arguments)
    results = run(chosen.traces, SEEDS[: chosen.seeds])
    for trace in chosen.traces:
        for contestant in CONTESTANTS:
            courses = results[trace, contestant]
            print(f"{trace}, {contestant}: {mean(courses):.2f} % ({_line(courses)})")
        for figure in figures_of(results, trace):
            print(figure)
    if chosen.plot:
        panels = [
            Panel(trace, {str(contestant): _mean_course(results[trace, contestant]) for contestant in CONTESTANTS})
            for trace in chosen.traces
        ]
        chosen.plot.write_text(draw(panels))


def _mean_course(courses: Sequence[Course]) -> list[float]:
    return [statistics.mean(at) for at in zip(*(course.allocated for course in courses), strict=False)]


if __name__ == "__main__":
    main(sys.argv[1:])

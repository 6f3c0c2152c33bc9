"""How long jobs wait, and what is lost, when some of them are preemptible: beside the same trace with none."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from benchmarks.measuring.figures import Figure
from reservation_core.domain.model import Node, Preemption
from reservation_core.domain.planning.standings import BY_AREA
from reservation_core.domain.simulation.replay import Course, Replay, TraceJob

PART = 0.3
"""Of the jobs, by the round's seed, so many are preemptible: at any time, without a least time or a signal."""

GROUPS = ("the ordinary jobs", "those, beside preemptible ones", "the others", "those, preemptible")


@dataclass(frozen=True, slots=True)
class Lent:
    """The waits of GROUPS, in seconds until the attempt that a job ended with, and what came of the preemptible ones.

    `lost` is the part of all GPU-time in which jobs had GPUs that went to attempts which gave them back.
    """

    waits: Mapping[str, Sequence[float]]
    preemptions: int
    preempted: float
    lost: float
    broken: int

    @property
    def ordinary(self) -> float:
        """The mean wait of ordinary jobs beside preemptible ones, in parts of what it is beside none."""
        without, beside = (fmean(self.waits[group]) for group in GROUPS[:2])
        return beside / max(without, 1.0)


def lent(jobs: Sequence[TraceJob], nodes: Sequence[Node], seed: int) -> Lent:
    """Replay a trace without preemptible jobs, and with some."""
    chance = random.Random(seed)
    chosen = {job.job.id for job in jobs if chance.random() < PART}
    some = [replace(job, terms=Preemption(preemptible=job.job.id in chosen)) for job in jobs]
    without, beside = (Replay(nodes, BY_AREA).run(trace) for trace in (jobs, some))
    waits = [
        _waits(course for job_id, course in courses.items() if (job_id in chosen) is preemptible)
        for preemptible in (False, True)
        for courses in (without, beside)
    ]
    gave = [beside[job_id] for job_id in chosen]
    lost = sum(course.lost.total_seconds() * course.trace_job.job.all_gpus for course in gave)
    return Lent(
        dict(zip(GROUPS, waits, strict=True)),
        sum(course.preemptions for course in gave),
        sum(course.preemptions > 0 for course in gave) / max(len(gave), 1),
        lost / (lost + sum(_used(course) for course in beside.values())),
        sum(_is_broken(course) for courses in (without, beside) for course in courses.values()),
    )


def figures(name: str, played: Sequence[Lent]) -> list[Figure]:
    """Print a table of the rounds; the figures that have a target.

    Ordinary jobs wait for ordinary ones alone, which are seven of ten: they must wait much less than beside none. What
    is lost for that must stay a small part.
    """
    print(f"{name}: {PART:.0%} of the jobs preemptible; hours, means of {len(played)} rounds")
    print(f"  {'':34}{'mean':>11}{'median':>11}")
    for group in GROUPS:
        means = (fmean(of(one.waits[group]) for one in played) / 3600 for of in (fmean, median))
        print(f"  {group:34}" + "".join(f"{value:11.2f}" for value in means))
    print(
        f"  {fmean(one.preemptions for one in played):.0f} preemptions, of "
        f"{fmean(one.preempted for one in played):.0%} of the preemptible jobs",
        flush=True,
    )
    title = f"{name}, {PART:.0%} preemptible"
    ordinary, lost = [one.ordinary for one in played], [one.lost for one in played]
    return [
        Figure(f"{title}: broken promises", "", [float(one.broken) for one in played], 0, at_least=False),
        Figure(f"{title}: ordinary jobs' mean wait of that beside none", "x", ordinary, 0.6, at_least=False),
        Figure(f"{title}: GPU-hours lost of all used", "x", lost, 0.15, at_least=False),
    ]


def _waits(courses: Iterable[Course]) -> list[float]:
    """ValueError for a job that did not start: all do, in the end."""
    answer: list[float] = []
    for course in courses:
        if course.started_at is None or course.ended_at is None:
            raise ValueError(f"{course.trace_job.job.id} never ended")
        answer.append((course.started_at - course.trace_job.submitted_at).total_seconds())
    return answer


def _used(course: Course) -> float:
    job = course.trace_job
    return min(job.ran, job.job.length).total_seconds() * job.job.all_gpus


def _is_broken(course: Course) -> bool:
    promised, started = course.promised_at, course.started_at
    return promised is not None and (started is None or started > promised)

"""What a replay comes to: how long jobs waited, by size and by user, what was used, and what was promised."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from statistics import fmean, median

from reservation_core.domain.simulation.replay import Course

SHORT_S = 600.0
"""Jobs that ran for less count as if they had run for so long in the slowdown, which is else that of the shortest."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that ran: times in seconds. `ahead` is by how much it started before its promised start, if it had one."""

    owner: int
    gpus: int
    waited: float
    ran: float
    ahead: float | None = None


@dataclass(frozen=True, slots=True)
class Waits:
    """Waits and promises, in seconds. `slowdown` is the mean of (wait + run) / run, at least 1 (see `SHORT_S`).

    `used` is the part of all GPU-time between the first submission and the last end in which jobs ran. `ahead` is the
    median of promised minus real start, `ahead_p90` its 90th percentile, `broken` the number of promises not kept.
    `waits` are all waits in order.
    """

    jobs: int
    mean: float
    median: float
    p90: float
    p99: float
    longest: float
    slowdown: float
    used: float
    broken: int
    ahead: float
    ahead_p90: float
    by_size: dict[int, float]
    by_user: dict[int, float]
    waits: tuple[float, ...]

    @property
    def worst_user(self) -> float:
        """The mean wait of the user who waited longest, in parts of the median user's."""
        means = sorted(self.by_user.values())
        return means[-1] / max(median(means), 1.0) if means else 0.0


def ended(courses: Iterable[Course]) -> list[Ended]:
    """The jobs of a replay."""
    answer: list[Ended] = []
    for course in courses:
        job, started = course.trace_job.job, course.started_at
        if started is None or course.ended_at is None:
            continue
        ahead = None if course.promised_at is None else (course.promised_at - started).total_seconds()
        waited, ran = started - course.trace_job.submitted_at, course.ended_at - started
        answer.append(Ended(job.owner, job.all_gpus, waited.total_seconds(), ran.total_seconds(), ahead))
    return answer


def summary(jobs: Sequence[Ended], gpus: int, lasted: timedelta) -> Waits:
    """All that is said about a replay on so many GPUs. ValueError for no jobs."""
    if not jobs:
        raise ValueError("no job ran")
    waits = sorted(job.waited for job in jobs)
    ahead = sorted(job.ahead or 0.0 for job in jobs)
    return Waits(
        len(jobs),
        fmean(waits),
        median(waits),
        quantile(waits, 0.9),
        quantile(waits, 0.99),
        waits[-1],
        fmean(max(1.0, (job.waited + job.ran) / max(job.ran, SHORT_S)) for job in jobs),
        sum(job.gpus * job.ran for job in jobs) / max(gpus * lasted.total_seconds(), 1.0),
        sum(job.ahead is not None and job.ahead < 0 for job in jobs),
        median(ahead),
        quantile(ahead, 0.9),
        _means(jobs, lambda job: job.gpus),
        _means(jobs, lambda job: job.owner),
        tuple(waits),
    )


def quantile(ordered: Sequence[float], part: float) -> float:
    """The value below which this part of these ordered values is."""
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def _means(jobs: Iterable[Ended], key: Callable[[Ended], int]) -> dict[int, float]:
    waits: defaultdict[int, list[float]] = defaultdict(list)
    for job in jobs:
        waits[key(job)].append(job.waited)
    return {name: fmean(waits[name]) for name in sorted(waits)}

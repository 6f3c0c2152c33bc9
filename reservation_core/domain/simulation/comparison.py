"""The same jobs twice through the planner: as things are today, and with something changed."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple

from reservation_core.domain.model import Gpu, GpuCondition, Node
from reservation_core.domain.planning.standings import BY_AREA, Orders
from reservation_core.domain.policy.limits import Policy, PolicyRule, Rules
from reservation_core.domain.policy.quota_book import QuotaBook
from reservation_core.domain.simulation.replay import Course, Replay, TraceJob
from reservation_core.domain.simulation.trace_bookings import TraceBooking
from reservation_core.domain.simulation.traces import ANY, lasted
from reservation_core.domain.simulation.waits import Waits, ended, summary

POINTS = 100
"""The most points of a curve."""


@dataclass(frozen=True, slots=True)
class Terms:
    """On which nodes jobs run, by which orders, rules, fair shares (None: without) and slack of promises."""

    nodes: tuple[Node, ...]
    orders: Orders = BY_AREA
    rules: tuple[PolicyRule, ...] = ()
    half_life: timedelta | None = None
    slack: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class Question:
    """The jobs of a comparison and the bookings beside them, their owners' names, and both terms."""

    jobs: tuple[TraceJob, ...]
    users: Mapping[int, str]
    today: Terms
    changed: Terms
    bookings: tuple[TraceBooking, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the jobs. The curve has (wait in seconds, part of the jobs that waited no longer), in order.

    For `refused` bookings too few GPUs were free.
    """

    waits: Waits
    curve: tuple[tuple[float, float], ...]
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both outcomes, of the jobs that run under both terms; None where no job does. `never` jobs do not."""

    today: Outcome | None
    changed: Outcome | None
    never: int


def compare(question: Question) -> Comparison:
    """Let the jobs run under both terms."""
    today = _run(question, question.today)
    changed = today if question.changed == question.today else _run(question, question.changed)
    both = [job_id for job_id, course in today.courses.items() if course.ended_at and changed.courses[job_id].ended_at]
    never = len(question.jobs) - len(both)
    if not both:
        return Comparison(None, None, never)
    return Comparison(_outcome(today, both, question.today), _outcome(changed, both, question.changed), never)


class _Run(NamedTuple):
    """What came of the jobs, and for how many bookings too few GPUs were free."""

    courses: Mapping[str, Course]
    refused: int


def _run(question: Question, terms: Terms) -> _Run:
    quotas = QuotaBook(Policy(terms.rules), question.users) if terms.rules else None
    replay = Replay(terms.nodes, terms.orders, terms.half_life, terms.slack, quotas=quotas)
    return _Run(replay.run(question.jobs, question.bookings), len(replay.without_gpus))


def _outcome(run: _Run, job_ids: Iterable[str], terms: Terms) -> Outcome:
    courses = [run.courses[job_id] for job_id in job_ids]
    time = lasted([course.trace_job for course in courses], [at for course in courses if (at := course.ended_at)])
    usable = sum(gpu.condition is GpuCondition.USABLE for node in terms.nodes if node.available for gpu in node.gpus)
    jobs = ended(courses)
    return Outcome(summary(jobs, usable, time), _curve([job.waited for job in jobs]), run.refused)


def _curve(waits: Sequence[float]) -> tuple[tuple[float, float], ...]:
    ordered = sorted(waits)
    count = min(POINTS, len(ordered))
    ends = [-(-number * len(ordered) // count) for number in range(1, count + 1)]
    return tuple((ordered[end - 1], end / len(ordered)) for end in ends)


def quotas_of(rules: Iterable[PolicyRule]) -> tuple[PolicyRule, ...]:
    """What a simulation reads of rules: GPUs at once, and GPU-hours a week."""
    kept = [
        PolicyRule(
            rule.scope, Rules(max_gpus=rule.rules.max_gpus, max_gpu_hours_per_week=rule.rules.max_gpu_hours_per_week)
        )
        for rule in rules
    ]
    return tuple(rule for rule in kept if not rule.rules.is_empty)


def types_of(nodes: Iterable[Node]) -> frozenset[str]:
    """The types of GPUs that nodes have."""
    return frozenset(gpu.gpu_type for node in nodes for gpu in node.gpus)


def more_nodes(nodes: Sequence[Node], added: Mapping[str, int]) -> tuple[Node, ...]:
    """These nodes, and so many more by type, each like most that have this type.

    ANY is the type where all GPUs have one. Raises KeyError for a type that no node has.
    """
    types = types_of(nodes)
    answer = list(nodes)
    for asked, count in added.items():
        gpu_type = next(iter(types)) if asked == ANY and len(types) == 1 else asked
        sizes = Counter(size for node in nodes if (size := sum(gpu.gpu_type == gpu_type for gpu in node.gpus)))
        if not sizes:
            raise KeyError(asked)
        size = max(sizes, key=lambda size: (sizes[size], size))
        first_id = max(gpu.id for node in answer for gpu in node.gpus) + 1
        for number in range(count):
            name = f"more-{gpu_type}-{number:04}"
            ids = range(first_id + number * size, first_id + (number + 1) * size)
            answer.append(Node(name, tuple(Gpu(gpu_id, name, index, gpu_type) for index, gpu_id in enumerate(ids))))
    return tuple(answer)


def without_links(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Nodes without what says nothing about waits: links, and details for people."""
    return tuple(
        replace(
            node,
            gpus=tuple(replace(gpu, uuid=None, memory_bytes=None) for gpu in node.gpus),
            unavailable_detail=None,
            links=None,
        )
        for node in nodes
    )

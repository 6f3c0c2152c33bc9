"""A trace of jobs through the planner in virtual time.

What decides is the planner's own: its picture, its starts and its slots. Only time is made up: it goes from one thing
that happens to the next, and at each the planner decides until it has nothing more to decide.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import heappop, heappush

from reservation_core.domain.model import Node
from reservation_core.domain.plan import PlanningSnapshot, Waiting
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.predictions.start_predictor import Prediction, StartPredictor
from reservation_core.domain.planning.run_times import RunTime
from reservation_core.domain.planning.slot_decisions import plan_slots
from reservation_core.domain.planning.standings import Orders
from reservation_core.domain.planning.start_decisions import plan_starts
from reservation_core.domain.policy.fair_share import decayed, ranks
from reservation_core.domain.policy.quota_book import QuotaBook

_AT_ONCE = 1_000_000
_RELEASED = 1000
"""How many jobs that a quota holds back are looked at again when jobs end; `Picture.note_held` has the same."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job of a trace: it asked for `job.length`, and ended by itself after `ran`, if that is shorter."""

    job: Waiting
    submitted_at: datetime
    ran: timedelta


@dataclass(slots=True)
class Course:
    """What came of a job. `promised_at` is its promised start; None if it started before it could be promised one.

    `predicted` is what was predicted when it had just come, if it did not start at once.
    """

    trace_job: TraceJob
    promised_at: datetime | None = None
    slot_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    predicted: Prediction | None = None


class Replay:
    """One run of a trace on these nodes, from nothing.

    With `half_life` equal priorities have fair shares. A job is promised a start by `slack` later than its first slot.
    A `predictor` is asked about jobs that have come and did not start, and learns from those that started and ended.
    `quotas` count GPUs at once; hours that ended jobs used this week do not count.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        orders: Orders,
        half_life: timedelta | None = None,
        slack: timedelta = timedelta(0),
        predictor: StartPredictor | None = None,
        quotas: QuotaBook | None = None,
    ) -> None:
        types = {gpu.gpu_type for node in nodes for gpu in node.gpus}
        self._picture = Picture(PlanningSnapshot(tuple(nodes), (), (), frozenset({None, *types})), slack=slack)
        self._slack = slack
        self._predictor = predictor
        self._picture.set_orders(orders)
        self._has_quotas = quotas is not None
        if quotas is not None:
            self._picture.set_quotas(quotas)
        self._courses: dict[str, Course] = {}
        self._shares = None if half_life is None else _Shares(half_life)
        self._ends: list[tuple[datetime, str]] = []
        self._slots: list[tuple[datetime, str]] = []

    def run(self, trace: Iterable[TraceJob]) -> Mapping[str, Course]:
        """Let all jobs of a trace, in the order of their submission, come, start and end."""
        for now, arrived in _by_time(trace):
            while (at := self._next()) is not None and at < now:
                self._pass(at, ())
            self._pass(now, arrived)
        while (at := self._next()) is not None:
            self._pass(at, ())
        return self._courses

    def _next(self) -> datetime | None:
        """When the next job ends, or the next slot comes."""
        while self._slots and not self._is_current(*self._slots[0]):
            heappop(self._slots)
        return min((times[0][0] for times in (self._ends, self._slots) if times), default=None)

    def _is_current(self, start: datetime, job_id: str) -> bool:
        course = self._courses[job_id]
        return course.started_at is None and course.slot_at == start

    def _pass(self, now: datetime, arrived: Sequence[TraceJob]) -> None:
        if self._shares is not None:
            self._shares.note_time(now, self._picture)
        while self._ends and self._ends[0][0] <= now:
            self._end(heappop(self._ends)[1], now)
        while self._slots and self._slots[0][0] <= now:
            heappop(self._slots)
        for trace_job in arrived:
            self._courses[trace_job.job.id] = Course(trace_job)
            self._picture.set_reservation(trace_job.job.id, trace_job.job, ())
        more = True
        while more:
            starts = plan_starts(self._picture, now, _AT_ONCE)
            for start in starts:
                self._start(start.id, now)
            plan = plan_slots(self._picture, now, _AT_ONCE, _AT_ONCE)
            for slot in plan.slots:
                course = self._courses[slot.id]
                course.promised_at = course.promised_at or slot.start + self._slack
                course.slot_at = slot.start
                if slot.start > now:
                    heappush(self._slots, (slot.start, slot.id))
            more = bool(starts) or plan.more or bool(plan.slots)
        if self._predictor is not None and arrived:
            jobs = [trace_job.job for trace_job in arrived]
            for job_id, predicted in self._predictor.predict_starts(self._picture, jobs, now).items():
                self._courses[job_id].predicted = predicted

    def _start(self, job_id: str, now: datetime) -> None:
        course = self._courses[job_id]
        course.started_at = now
        trace_job = course.trace_job
        if self._shares is not None:
            self._shares.hold(trace_job.job, 1)
        if self._predictor is not None:
            self._predictor.note_start(job_id, now)
        heappush(self._ends, (now + min(trace_job.ran, trace_job.job.length), job_id))

    def _end(self, job_id: str, now: datetime) -> None:
        course = self._courses[job_id]
        course.ended_at = now
        if self._shares is not None:
            self._shares.hold(course.trace_job.job, -1)
        if self._predictor is not None:
            self._predictor.learn([_run_time(course, now)])
        self._picture.set_reservation(job_id, None, ())
        if self._has_quotas:
            self._picture.queue.release_some(_RELEASED)


def _run_time(course: Course, now: datetime) -> RunTime:
    job = course.trace_job.job
    ran = now - (course.started_at or now)
    return RunTime(job.owner, job.gpus, job.nodes, job.gpu_type, job.length.total_seconds(), ran.total_seconds(), now)


class _Shares:
    """What users have had, and their ranks, which follow it from time to time."""

    def __init__(self, half_life: timedelta) -> None:
        self._half_life = half_life
        self._usage: dict[int, float] = {}
        self._held: Counter[int] = Counter()
        self._as_of: datetime | None = None

    def hold(self, job: Waiting, times: int) -> None:
        """Note that a job has its GPUs (1), or has them no more (-1)."""
        self._held[job.owner] += times * job.all_gpus

    def note_time(self, now: datetime, picture: Picture) -> None:
        """Count what is held up to now; called before anything changes."""
        if self._as_of is not None:
            self._usage = decayed(self._usage, self._held, self._half_life, now - self._as_of)
        self._as_of = now
        picture.set_shares(ranks(self._usage))


def _by_time(trace: Iterable[TraceJob]) -> Iterator[tuple[datetime, list[TraceJob]]]:
    """The jobs that come at one time, together."""
    arrived: list[TraceJob] = []
    for trace_job in trace:
        if arrived and trace_job.submitted_at != arrived[0].submitted_at:
            yield arrived[0].submitted_at, arrived
            arrived = []
        arrived.append(trace_job)
    if arrived:
        yield arrived[0].submitted_at, arrived

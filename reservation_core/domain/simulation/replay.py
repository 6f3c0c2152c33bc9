"""A trace of jobs and bookings through the planner in virtual time.

What decides is the planner's own: its picture, its starts and its slots. Only time is made up: it goes from one thing
that happens to the next, and at each the planner decides until it has nothing more to decide.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import heappop, heappush, merge
from operator import attrgetter

from reservation_core.domain.calendar import to_micros
from reservation_core.domain.model import NO_PREEMPTION, Node, Preemption
from reservation_core.domain.plan import Asker, PlanningSnapshot, Start, Waiting
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.predictions.start_predictor import Prediction, StartPredictor
from reservation_core.domain.planning.run_times import RunTime
from reservation_core.domain.planning.slot_decisions import plan_slots
from reservation_core.domain.planning.standings import Orders
from reservation_core.domain.planning.start_decisions import plan_starts
from reservation_core.domain.policy.fair_share import decayed, ranks
from reservation_core.domain.policy.quota_book import QuotaBook
from reservation_core.domain.policy.quota_meters import Amount
from reservation_core.domain.policy.quota_windows import week_start
from reservation_core.domain.simulation.lenders import Lenders, as_planned
from reservation_core.domain.simulation.trace_bookings import TraceBooking, booked_rows

_AT_ONCE = 1_000_000
_RELEASED = 1000
"""How many jobs that a quota holds back are looked at again when jobs end; `Picture.note_held` has the same."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job of a trace: it asked for `job.length`, and ended by itself after `ran`, if that is shorter.

    By its `terms` it may be preemptible. Then each attempt runs from the start.
    """

    job: Waiting
    submitted_at: datetime
    ran: timedelta
    terms: Preemption = NO_PREEMPTION


@dataclass(slots=True)
class Course:
    """What came of a job. `promised_at` is its promised start; None if it started before it could be promised one.

    `predicted` is what was predicted when it had just come, if it did not start at once. A preemptible job gave its
    GPUs back `preemptions` times, and `lost` what it had run by then; `started_at` is the start of its last attempt.
    """

    trace_job: TraceJob
    promised_at: datetime | None = None
    slot_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    predicted: Prediction | None = None
    preemptions: int = 0
    lost: timedelta = timedelta(0)


class Replay:
    """One run of a trace on these nodes, from nothing.

    With `half_life` equal priorities have fair shares. A job is promised a start by `slack` later than its first slot.
    A `predictor` is asked about jobs that have come and did not start, and learns from those that started and ended.
    `quotas` count jobs and bookings, and the hours that those that are over used this week. Bookings take GPUs as they
    are made, beside what is promised; no quota refuses one. `without_gpus` are those for which too few were free.
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
        self._quotas = quotas
        if quotas is not None:
            self._picture.set_quotas(quotas)
        self._courses: dict[str, Course] = {}
        self._lenders = Lenders(self._picture)
        self._holders: dict[str, _Holder] = {}
        self._used: deque[tuple[datetime, str]] = deque()
        self.without_gpus: list[str] = []
        self._shares = None if half_life is None else _Shares(half_life)
        self._begins: list[tuple[datetime, str]] = []
        self._ends: list[tuple[datetime, str]] = []
        self._slots: list[tuple[datetime, str]] = []

    def run(self, trace: Iterable[TraceJob], bookings: Iterable[TraceBooking] = ()) -> Mapping[str, Course]:
        """Let all jobs and bookings, each in the order of their submission, come, start and end."""
        for now, arrived in _by_time(merge(bookings, trace, key=attrgetter("submitted_at"))):
            while (at := self._next()) is not None and at < now:
                self._pass(at, ())
            self._pass(now, arrived)
        while (at := self._next()) is not None:
            self._pass(at, ())
        return self._courses

    def _next(self) -> datetime | None:
        """When the next job or booking ends, the next booking begins, the next slot comes, or a job gives its GPUs."""
        while self._slots and not self._is_current(*self._slots[0]):
            heappop(self._slots)
        times = [times[0][0] for times in (self._ends, self._begins, self._slots) if times]
        look = self._lenders.next_look()
        return min(times if look is None else [*times, look], default=None)

    def _is_current(self, start: datetime, job_id: str) -> bool:
        course = self._courses[job_id]
        return course.started_at is None and course.slot_at == start

    def _pass(self, now: datetime, arrived: Sequence[TraceJob | TraceBooking]) -> None:
        if self._shares is not None:
            self._shares.note_time(now, self._picture)
        while self._ends and self._ends[0][0] <= now:
            self._end(*heappop(self._ends), now)
        while self._begins and self._begins[0][0] <= now:
            self._begin(heappop(self._begins)[1])
        while self._slots and self._slots[0][0] <= now:
            heappop(self._slots)
        self._lenders.renew(now)
        jobs: list[Waiting] = []
        for request in arrived:
            if isinstance(request, TraceBooking):
                self._book(request)
            else:
                job = as_planned(request.job, request.terms)
                jobs.append(job)
                self._courses[job.id] = Course(request)
                self._picture.set_reservation(job.id, job, ())
        self._plan(now)
        for job_id, gone_at in self._lenders.ask(now):
            heappush(self._ends, (gone_at, job_id))
        if self._predictor is not None and jobs:
            for job_id, predicted in self._predictor.predict_starts(self._picture, jobs, now).items():
                self._courses[job_id].predicted = predicted

    def _plan(self, now: datetime) -> None:
        more = True
        while more:
            starts = plan_starts(self._picture, now, _AT_ONCE)
            for start in starts:
                self._start(start, now)
            plan = plan_slots(self._picture, now, _AT_ONCE, _AT_ONCE)
            for slot in plan.slots:
                course = self._courses[slot.id]
                course.promised_at = course.promised_at or slot.start + self._slack
                course.slot_at = slot.start
                if slot.start > now:
                    heappush(self._slots, (slot.start, slot.id))
            more = bool(starts) or plan.more or bool(plan.slots)

    def _book(self, booking: TraceBooking) -> None:
        """Let a booking take its GPUs; they go back at its end, or when it is given up."""
        rows = booked_rows(booking, self._picture.pools.by_type.values())
        if not rows:
            self.without_gpus.append(booking.id)
            return
        self._picture.set_reservation(booking.id, None, rows)
        gpu_type = self._picture.pools.type_of(rows[0].gpu_id) or ""
        holder = _Holder(Asker(booking.owner, booking.project, gpu_type), len(rows), rows[0].start)
        self._holders[booking.id] = holder
        self._claim(booking.id, holder, rows[0].end)
        heappush(self._begins, (holder.start, booking.id))
        heappush(self._ends, (booking.until, booking.id))

    def _claim(self, reservation_id: str, holder: "_Holder", end: datetime) -> None:
        """Count in the quotas what a booking or something that is over has."""
        if self._quotas is not None and holder.start < end:
            amount = Amount(holder.gpus, to_micros(holder.start), to_micros(end))
            self._quotas.claim(reservation_id, holder.asker, amount)

    def _start(self, start: Start, now: datetime) -> None:
        job_id = start.id
        course = self._courses[job_id]
        course.started_at = now
        trace_job = course.trace_job
        job = trace_job.job
        if trace_job.terms.preemptible:  # it takes from nobody: neither quotas nor fair shares count it
            heappush(self._ends, (self._lenders.start(job, trace_job.terms, start, trace_job.ran), job_id))
            return
        gpu_type = self._picture.pools.type_of(start.gpus[0].gpu_id) or ""
        self._holders[job_id] = _Holder(job.asker(gpu_type), job.all_gpus, now)
        self._begin(job_id)
        if self._predictor is not None:
            self._predictor.note_start(job_id, now)
        heappush(self._ends, (now + min(trace_job.ran, job.length), job_id))

    def _begin(self, reservation_id: str) -> None:
        """Count from now on in fair shares what a job or booking has; nothing of a booking that was given up before."""
        holder = self._holders.get(reservation_id)
        if holder is not None:
            holder.has_begun = True
            if self._shares is not None:
                self._shares.hold(holder.asker.owner, holder.gpus)

    def _end_preemptible(self, course: Course, at: datetime, now: datetime) -> None:
        job = course.trace_job.job
        if not self._lenders.ends(job.id, at):
            return
        waits_again = self._lenders.end(job.id)
        if waits_again and course.started_at is not None:
            course.preemptions += 1
            course.lost += now - course.started_at
            course.started_at = None
        else:
            course.ended_at = now
        self._picture.set_reservation(job.id, as_planned(job, course.trace_job.terms) if waits_again else None, ())

    def _end(self, at: datetime, reservation_id: str, now: datetime) -> None:
        preemptible = self._courses.get(reservation_id)
        if preemptible is not None and preemptible.trace_job.terms.preemptible:
            self._end_preemptible(preemptible, at, now)
            return
        holder = self._holders.pop(reservation_id)
        if self._shares is not None and holder.has_begun:
            self._shares.hold(holder.asker.owner, -holder.gpus)
        course = self._courses.get(reservation_id)
        if course is not None:
            course.ended_at = now
            if self._predictor is not None:
                self._predictor.learn([_run_time(course, now)])
        self._picture.set_reservation(reservation_id, None, ())
        if self._quotas is not None:
            self._claim(reservation_id, holder, now)
            self._used.append((now, reservation_id))
            while self._used and self._used[0][0] <= week_start(now):
                self._quotas.set_claims(self._used.popleft()[1], ())
            self._picture.queue.release_some(_RELEASED)


@dataclass(slots=True)
class _Holder:
    """What a job or booking has from `start` on, as quotas see it."""

    asker: Asker
    gpus: int
    start: datetime
    has_begun: bool = False


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

    def hold(self, owner: int, gpus: int) -> None:
        """Note that a user has so many GPUs more, or less."""
        self._held[owner] += gpus

    def note_time(self, now: datetime, picture: Picture) -> None:
        """Count what is held up to now; called before anything changes."""
        if self._as_of is not None:
            self._usage = decayed(self._usage, self._held, self._half_life, now - self._as_of)
        self._as_of = now
        picture.set_shares(ranks(self._usage))


def _by_time(
    requests: Iterable[TraceJob | TraceBooking],
) -> Iterator[tuple[datetime, list[TraceJob | TraceBooking]]]:
    """What comes at one time, together."""
    arrived: list[TraceJob | TraceBooking] = []
    for request in requests:
        if arrived and request.submitted_at != arrived[0].submitted_at:
            yield arrived[0].submitted_at, arrived
            arrived = []
        arrived.append(request)
    if arrived:
        yield arrived[0].submitted_at, arrived

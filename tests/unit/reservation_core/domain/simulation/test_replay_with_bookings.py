"""Bookings and GPU-hours a week in virtual time: counted as the planner's processes count them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.nouns import Wanted
from reservation_core.domain.plan import Commitment, PlanningSnapshot
from reservation_core.domain.planning.calendar_planning import CalendarPicture
from reservation_core.domain.planning.standings import BY_AREA, BY_ARRIVAL, Orders
from reservation_core.domain.policy.limits import Policy, PolicyRule, Rules
from reservation_core.domain.policy.nouns import Scope
from reservation_core.domain.policy.quota_book import QuotaBook
from reservation_core.domain.policy.quota_rulings import spent
from reservation_core.domain.policy.quota_windows import WEEK, Held, gpu_time, peak, week_start, weeks_of
from reservation_core.domain.policy.rules import Holding
from reservation_core.domain.simulation.replay import Course, Replay, TraceJob
from reservation_core.domain.simulation.trace_bookings import TraceBooking, booked_rows
from reservation_core.domain.statuses import ReservationKind
from tests.examples import examples
from tests.unit.reservation_core.domain.simulation.test_replay import HOUR, T0, check_course, nodes, trace_job

MONDAY = week_start(T0) + WEEK
NAMES = {0: "ann", 1: "bo"}
SIZES = (4, 2)
EVER = 10_000


def job_of(seq: int, at: float, gpus: int, asked: float, ran: float, owner: int = 0) -> TraceJob:
    """A job that comes so many hours after a Monday."""
    made = trace_job(seq, (MONDAY - T0) / HOUR + at, gpus, asked, ran)
    return replace(made, job=replace(made.job, owner=owner))


def booking_of(number: int, made: float, start: float, hours: float, gpus: int, kept: float = EVER) -> TraceBooking:
    """A booking, in hours after a Monday; `kept` hours after it was made it is given up, if it is not over before."""
    span = Span(MONDAY + start * HOUR, MONDAY + (start + hours) * HOUR)
    made_at = MONDAY + made * HOUR
    until = min(span.end, made_at + kept * HOUR)
    return TraceBooking(f"bkg-{number}", Wanted(gpus, 1, "h100"), span, made_at, until, number % 2)


def replayed(jobs: list[TraceJob], bookings: Sequence[TraceBooking] = (), *rules: PolicyRule) -> list[float]:
    """The starts of jobs, in hours after the Monday."""
    quotas = QuotaBook(Policy(rules), NAMES) if rules else None
    courses = Replay(nodes(*SIZES), BY_ARRIVAL, quotas=quotas).run(jobs, bookings)
    return [(course.started_at - MONDAY) / HOUR for course in courses.values() if course.started_at is not None]


def test_a_job_waits_for_the_end_of_a_booking_or_until_it_is_given_up() -> None:
    jobs = [job_of(1, 1, 4, asked=10, ran=10)]
    assert replayed(jobs, [booking_of(1, 0, 5, 20, 4)]) == [25]
    assert replayed(jobs, [booking_of(1, 0, 5, 20, 4, kept=8)]) == [8]
    # It ends before the booking begins.
    assert replayed([job_of(1, 1, 4, asked=4, ran=4)], [booking_of(1, 0, 5, 20, 4)]) == [1]


def test_a_booking_takes_no_gpus_that_were_promised() -> None:
    jobs = [job_of(1, 0, 4, asked=10, ran=10), job_of(2, 0, 4, asked=10, ran=10)]
    replay = Replay(nodes(*SIZES), BY_ARRIVAL)
    courses = replay.run(jobs, [booking_of(1, 1, 15, 5, 4), booking_of(2, 1, 20, 5, 4)])
    assert replay.without_gpus == ["bkg-1"]
    assert courses["job-2"].started_at == MONDAY + 10 * HOUR


def test_hours_that_were_used_count_until_the_week_is_over() -> None:
    quota = PolicyRule(Scope(user="ann"), Rules(max_gpu_hours_per_week=8.0))
    jobs = [job_of(1, 0, 4, asked=2, ran=2), job_of(2, 50, 4, asked=1.5, ran=1)]
    assert replayed(jobs, (), quota) == [0, 7 * 24]
    # The first used less than it asked for.
    assert replayed([job_of(1, 0, 4, asked=2, ran=0.5), jobs[1]], (), quota) == [0, 50]
    # A booking has 3 hours of the week, until it is given up; 5 are left for the last hour and a quarter.
    assert replayed(jobs[1:], [booking_of(2, 0, 100, 1, 3)], quota) == [7 * 24 - 1.25]
    assert replayed(jobs[1:], [booking_of(2, 0, 100, 1, 3, kept=60)], quota) == [60]
    assert replayed(jobs[1:], [booking_of(1, 0, 100, 1, 3)], quota) == [50]


def test_a_booking_counts_in_fair_shares_from_its_begin_on() -> None:
    jobs = [job_of(1, 6, 4, 1, 1, owner=1), job_of(2, 6, 4, 1, 1, owner=0)]
    for kept, starts in ((EVER, [11, 10]), (5, [6, 7])):
        courses = Replay(nodes(4), BY_ARRIVAL, half_life=WEEK).run(jobs, [booking_of(1, 0, 5, 5, 4, kept)])
        assert [course.started_at for course in courses.values()] == [MONDAY + start * HOUR for start in starts]


class Planner:
    """The planner as its processes drive it: rows are set as they change, and each time all that is held is read anew.

    So is the time that was given back this week, as one sum for each owner.
    """

    def __init__(self, orders: Orders, policy: Policy) -> None:
        inventory = tuple(nodes(*SIZES))
        self._picture = CalendarPicture(PlanningSnapshot(inventory, (), (), frozenset({None, "h100"})))
        self._picture.common.set_orders(orders)
        self._picture.common.set_quotas(QuotaBook(policy, NAMES))
        self._rows: dict[str, tuple[Commitment, ...]] = {}
        self._owners: dict[str, int] = {}
        self._over: list[tuple[int, Held]] = []
        self._ends: dict[str, datetime] = {}
        self._jobs: dict[str, TraceJob] = {}
        self._now = T0
        self.slots: dict[str, datetime] = {}
        self.starts: dict[str, datetime] = {}
        self.promises: dict[str, datetime] = {}

    def run(self, requests: Sequence[TraceJob | TraceBooking]) -> None:
        """Let all come, start and end."""
        waiting = sorted(requests, key=lambda request: (request.submitted_at, isinstance(request, TraceJob)))
        while (now := self._next(waiting)) is not None:
            self._now = now
            for reservation_id in [over for over, end in self._ends.items() if end <= now]:
                self._end(reservation_id, now)
            while waiting and waiting[0].submitted_at == now:
                self._take(waiting.pop(0))
            self._picture.common.note_held(self._held(now))
            self._plan(now)

    def _next(self, waiting: list[TraceJob | TraceBooking]) -> datetime | None:
        times = [*self._ends.values(), *self.slots.values(), *(request.submitted_at for request in waiting[:1])]
        return min((time for time in times if time > self._now), default=None)

    def _take(self, request: TraceJob | TraceBooking) -> None:
        if isinstance(request, TraceJob):
            self._jobs[request.job.id] = request
            self._picture.set_reservation(request.job.id, request.job, ())
            return
        rows = booked_rows(request, self._picture.common.pools.by_type.values())
        if rows:
            self._rows[request.id], self._owners[request.id] = rows, request.owner
            self._ends[request.id] = request.until
            self._picture.set_reservation(request.id, None, rows)

    def _end(self, reservation_id: str, now: datetime) -> None:
        del self._ends[reservation_id]
        rows, owner = self._rows.pop(reservation_id), self._owners[reservation_id]
        if rows[0].start < now:
            self._over.append((owner, Held(len(rows), rows[0].start, now)))
        self._picture.set_reservation(reservation_id, None, ())

    def _held(self, now: datetime) -> Iterator[Holding]:
        for reservation_id, rows in self._rows.items():
            user = NAMES[self._owners[reservation_id]]
            span = rows[0].start, rows[0].end
            yield Holding(reservation_id, ReservationKind.JOB, user, None, "h100", len(rows), *span)
        since = week_start(now)
        for owner, user in NAMES.items():
            time = gpu_time([held for whose, held in self._over if whose == owner], since, now)
            if time:
                yield spent(user, None, "h100", time, since, now)

    def _plan(self, now: datetime) -> None:
        more = True
        while more:
            starts = self._picture.plan_starts(now, EVER)
            for start in starts:
                job = self._jobs[start.id]
                self.starts[start.id] = now
                self.slots.pop(start.id, None)
                self._rows[start.id] = tuple(
                    Commitment(start.id, gpu.gpu_id, now, start.end, True) for gpu in start.gpus
                )
                self._owners[start.id] = job.job.owner
                self._ends[start.id] = now + min(job.ran, job.job.length)
            plan = self._picture.plan_slots(now, EVER, EVER)
            for slot in plan.slots:
                self.promises.setdefault(slot.id, slot.start)
                self.slots[slot.id] = slot.start
            more = bool(starts or plan.slots or plan.more)


OWNERS = st.integers(0, 1)
JOBS = st.lists(
    st.tuples(
        st.integers(0, 400), st.sampled_from((1, 1, 2, 4)), st.integers(1, 60), st.sampled_from((0.1, 0.5, 1)), OWNERS
    ),
    max_size=20,
)
BOOKINGS = st.lists(
    st.tuples(
        st.integers(0, 300), st.integers(0, 100), st.integers(1, 60), st.sampled_from((1, 2, 4)), st.integers(1, 200)
    ),
    max_size=6,
)
LIMITS = st.sampled_from((None, 20.0, 60.0, 150.0))


@examples(300)
@given(JOBS, BOOKINGS, st.sampled_from((None, 3, 4)), LIMITS, LIMITS, st.sampled_from((BY_AREA, BY_ARRIVAL)))
def test_decisions_are_those_of_a_planner_that_reads_anew_what_is_held_and_was_given_back(
    asked: list[tuple[int, int, int, float, int]],
    booked: list[tuple[int, int, int, int, int]],
    at_once: int | None,
    hours: float | None,
    more_hours: float | None,
    orders: Orders,
) -> None:
    trace = [
        job_of(seq, at, gpus, length, length * part, owner)
        for seq, (at, gpus, length, part, owner) in enumerate(sorted(asked), 1)
    ]
    bookings = [
        booking_of(number, made, made + ahead, length, gpus, kept)
        for number, (made, ahead, length, gpus, kept) in enumerate(sorted(booked))
    ]
    policy = Policy(
        [
            PolicyRule(Scope(), Rules(max_gpus=at_once, max_gpu_hours_per_week=hours)),
            PolicyRule(Scope(user="bo"), Rules(max_gpu_hours_per_week=more_hours)),
        ]
    )
    replay = Replay(nodes(*SIZES), orders, quotas=QuotaBook(policy, NAMES))
    courses = replay.run(trace, bookings)
    planner = Planner(orders, policy)
    planner.run([*trace, *bookings])
    assert {job_id: course.started_at for job_id, course in courses.items() if course.started_at} == planner.starts
    assert {job_id: course.promised_at for job_id, course in courses.items() if course.promised_at} == planner.promises
    made = [booking for booking in bookings if booking.id not in replay.without_gpus]
    check_quotas([course for course in courses.values() if course.started_at], made, policy)


def check_quotas(courses: Sequence[Course], bookings: Sequence[TraceBooking], policy: Policy) -> None:
    """At its start a job was within its owner's quotas, beside other jobs, and bookings that were made before it came.

    Later ones take nothing from what it was promised.
    """
    for course in courses:
        check_course(course)
        job, now = course.trace_job.job, course.started_at
        assert now is not None
        held = [
            Held(
                other.trace_job.job.gpus,
                other.started_at,
                min(other.ended_at, now) if other.ended_at <= now else other.started_at + other.trace_job.job.length,
            )
            for other in courses
            if other is not course and other.trace_job.job.owner == job.owner and other.started_at <= now
        ]
        held += [
            Held(booking.wanted.gpus, booking.span.start, booking.until if booking.until <= now else booking.span.end)
            for booking in bookings
            if booking.owner == job.owner and booking.submitted_at <= course.trace_job.submitted_at
        ]
        end = now + job.length
        limits = policy.limits(NAMES[job.owner], None, "h100")
        if limits.max_gpus is not None:
            assert peak(held, now, end) + job.gpus <= limits.max_gpus.value
        if limits.max_gpu_hours_per_week is not None:
            for week in weeks_of(now, end):
                used = gpu_time([*held, Held(job.gpus, now, end)], week, week + WEEK)
                assert used <= limits.max_gpu_hours_per_week.value * HOUR

"""Traces in virtual time: every job runs once and in time, on GPUs of its own."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.calendar import to_micros
from reservation_core.domain.model import Gpu, Node
from reservation_core.domain.plan import Waiting
from reservation_core.domain.planning.standings import BY_AREA, BY_ARRIVAL, Orders
from reservation_core.domain.simulation.replay import Course, Replay, TraceJob
from tests.examples import examples

T0 = datetime(2030, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def nodes(*sizes: int) -> list[Node]:
    answer: list[Node] = []
    for number, size in enumerate(sizes):
        gpus = tuple(Gpu(100 * number + index, f"n{number}", index, "h100") for index in range(size))
        answer.append(Node(f"n{number}", gpus))
    return answer


def trace_job(seq: int, at: float, gpus: int, asked: float, ran: float) -> TraceJob:
    moment = T0 + at * HOUR
    waiting = Waiting(f"job-{seq}", gpus, 1, "h100", asked * HOUR, 0, seq, submitted_at=to_micros(moment))
    return TraceJob(waiting, moment, ran * HOUR)


def started(trace: list[TraceJob], orders: Orders, *sizes: int) -> list[float]:
    courses = Replay(nodes(*sizes), orders).run(trace)
    return [(course.started_at - T0) / HOUR for course in courses.values() if course.started_at is not None]


def test_the_small_job_starts_first_when_something_comes_free_and_no_promise_is_broken() -> None:
    trace = [
        trace_job(1, 0, 2, asked=10, ran=2),
        trace_job(2, 1, 2, asked=10, ran=10),
        trace_job(3, 1, 2, asked=1, ran=1),
    ]
    # At 2 h, long before its promise, either could start.
    assert started(trace, BY_AREA, 2) == [0, 3, 2]
    assert started(trace, BY_ARRIVAL, 2) == [0, 2, 12]


def test_a_job_ends_when_its_time_is_over_though_it_would_run_on() -> None:
    trace = [trace_job(1, 0, 1, asked=1, ran=5), trace_job(2, 0.5, 1, asked=1, ran=1)]
    assert started(trace, BY_AREA, 1) == [0, 1]


@examples(200)
@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.sampled_from((1, 1, 2, 4)), st.integers(1, 12), st.floats(0.1, 1)), max_size=25
    ),
    st.sampled_from((BY_AREA, BY_ARRIVAL)),
)
def test_every_promise_is_kept_and_no_gpu_is_used_twice(
    asked: list[tuple[int, int, int, float]], orders: Orders
) -> None:
    trace = [
        trace_job(seq, at, gpus, length, length * part)
        for seq, (at, gpus, length, part) in enumerate(sorted(asked), start=1)
    ]
    courses = Replay(nodes(4, 2), orders).run(trace)
    assert len(courses) == len(trace)
    changes: list[tuple[datetime, int]] = []
    for course in courses.values():
        check_course(course)
        assert course.started_at is not None
        assert course.ended_at is not None
        gpus = course.trace_job.job.all_gpus
        changes += [(course.started_at, gpus), (course.ended_at, -gpus)]
    in_use = 0
    for _, gpus in sorted(changes):
        in_use += gpus
        assert in_use <= 6


def check_course(course: Course) -> None:
    job, at = course.trace_job.job, course.trace_job.submitted_at
    assert course.started_at is not None
    assert course.started_at >= at
    assert course.promised_at is None or course.started_at <= course.promised_at
    assert course.ended_at == course.started_at + min(course.trace_job.ran, job.length)


def test_with_fair_shares_the_user_who_had_less_goes_first() -> None:
    trace = [trace_job(1, 0, 1, 10, 10), trace_job(2, 1, 1, 1, 1), trace_job(3, 1, 1, 2, 2)]
    trace[2] = replace(trace[2], job=replace(trace[2].job, owner=2))
    courses = Replay(nodes(1), BY_AREA, half_life=timedelta(days=7)).run(trace)
    starts = [courses[f"job-{seq}"].started_at for seq in (1, 2, 3)]
    assert starts == [T0, T0 + 12 * HOUR, T0 + 10 * HOUR]

"""Preemptible jobs in virtual time: nobody is late for them, and all of them end in the end."""

from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.nouns import Wanted
from reservation_core.domain.model import Preemption
from reservation_core.domain.planning.standings import BY_AREA, BY_ARRIVAL, Orders
from reservation_core.domain.request_terms import EndSignal, SignalName
from reservation_core.domain.simulation.lenders import TURNAROUND
from reservation_core.domain.simulation.replay import Course, Replay, TraceJob
from reservation_core.domain.simulation.trace_bookings import TraceBooking
from tests.examples import examples
from tests.unit.reservation_core.domain.simulation.test_replay import HOUR, T0, check_course, nodes, trace_job

AT_ONCE = Preemption(preemptible=True)
MINUTE = timedelta(minutes=1)
NOTHING = timedelta(0)


def lending(job: TraceJob, terms: Preemption = AT_ONCE) -> TraceJob:
    return replace(job, terms=terms)


def replayed(*jobs: TraceJob) -> list[Course]:
    return list(Replay(nodes(2), BY_AREA).run(jobs).values())


def test_it_keeps_its_gpus_while_nobody_needs_them() -> None:
    [alone] = replayed(lending(trace_job(1, 0, 2, asked=100, ran=50)))
    assert (alone.started_at, alone.ended_at, alone.preemptions) == (T0, T0 + 50 * HOUR, 0)


def test_it_gives_them_to_one_that_comes_and_runs_from_the_start_afterwards() -> None:
    lender, other = replayed(lending(trace_job(1, 0, 2, asked=10, ran=5)), trace_job(2, 3, 1, asked=2, ran=1))
    gone_at = T0 + 3 * HOUR + TURNAROUND
    assert (other.started_at, other.ended_at) == (gone_at, gone_at + HOUR)
    assert (lender.preemptions, lender.lost) == (1, gone_at - T0)
    assert (lender.started_at, lender.ended_at) == (gone_at + HOUR, gone_at + 6 * HOUR)
    assert lender.promised_at is None


def test_its_least_time_and_its_signal_are_waited_for() -> None:
    terms = Preemption(True, 4 * HOUR, EndSignal(SignalName.USR1, 5 * MINUTE))
    lender, other = replayed(lending(trace_job(1, 0, 2, asked=10, ran=5), terms), trace_job(2, 3, 1, asked=2, ran=1))
    assert other.started_at == T0 + 4 * HOUR + 5 * MINUTE + TURNAROUND
    assert (lender.preemptions, lender.lost) == (1, 4 * HOUR + 5 * MINUTE + TURNAROUND)


def test_one_that_ends_before_it_is_asked_has_ended() -> None:
    terms = Preemption(True, 4 * HOUR)
    lender, other = replayed(lending(trace_job(1, 0, 2, asked=10, ran=4), terms), trace_job(2, 3, 1, asked=2, ran=1))
    assert (lender.ended_at, lender.preemptions) == (T0 + 4 * HOUR, 0)
    assert other.started_at == lender.ended_at


def test_fair_shares_leave_it_out() -> None:
    jobs = [lending(trace_job(1, 0, 1, 10, 10)), trace_job(2, 11, 1, 2, 2), trace_job(3, 12, 1, 1, 1)]
    owners = (1, 3, 1, 2)
    jobs = [
        replace(made, job=replace(made.job, owner=owner))
        for made, owner in zip([*jobs, trace_job(4, 12, 1, 2, 2)], owners, strict=True)
    ]
    courses = Replay(nodes(1), BY_AREA, half_life=timedelta(days=7)).run(jobs)
    # The first had ten hours, and its owner's next goes before the longer one of a user who had none.
    starts = [course.started_at for course in courses.values()]
    assert starts == [T0, T0 + 11 * HOUR, T0 + 13 * HOUR, T0 + 14 * HOUR]


TERMS = st.builds(
    Preemption,
    st.just(True),
    st.sampled_from((NOTHING, NOTHING, 30 * MINUTE, 3 * HOUR)),
    st.sampled_from((None, EndSignal(SignalName.TERM, NOTHING), EndSignal(SignalName.USR1, 10 * MINUTE))),
)
JOBS = st.tuples(
    st.integers(0, 20),
    st.sampled_from((1, 1, 2, 4)),
    st.integers(3, 12),
    st.floats(0.1, 1),
    st.one_of(st.just(Preemption()), TERMS),
)
BOOKINGS = st.tuples(st.integers(0, 20), st.integers(0, 10), st.integers(1, 8), st.sampled_from((1, 2, 4)))


@examples(300)
@given(st.lists(JOBS, max_size=25), st.lists(BOOKINGS, max_size=4), st.sampled_from((BY_AREA, BY_ARRIVAL)))
def test_no_promise_is_missed_for_one_and_all_end(
    asked: list[tuple[int, int, int, float, Preemption]], booked: list[tuple[int, int, int, int]], orders: Orders
) -> None:
    trace = [
        lending(trace_job(seq, at, gpus, length, length * part), terms)
        for seq, (at, gpus, length, part, terms) in enumerate(sorted(asked, key=lambda job: job[0]), start=1)
    ]
    bookings = [
        TraceBooking(
            f"bkg-{number}",
            Wanted(gpus, 1, "h100"),
            span := Span(T0 + (at + later) * HOUR, T0 + (at + later + hours) * HOUR),
            T0 + at * HOUR,
            span.end,
        )
        for number, (at, later, hours, gpus) in enumerate(sorted(booked))
    ]
    courses = Replay(nodes(4, 2), orders).run(trace, bookings)
    assert len(courses) == len(trace)
    for course in courses.values():
        check_course(course)
        terms = course.trace_job.terms
        assert course.lost >= course.preemptions * terms.min_runtime
        if terms.preemptible:
            assert course.promised_at is None
        else:
            assert course.preemptions == 0

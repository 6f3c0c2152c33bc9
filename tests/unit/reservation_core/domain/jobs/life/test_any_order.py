"""Whatever the order of events, a job's life is a legal one."""

from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.changes import (
    AvoidNodes,
    CancelRequested,
    DecidedChange,
    DeletePods,
    Event,
    ExtendRequested,
    PodsGone,
    Record,
    ReleaseGpus,
    SetRangeEnd,
    WakePlanner,
)
from reservation_core.domain.jobs.lifecycle import decide, transition
from reservation_core.domain.model import Reservation
from reservation_core.domain.statuses import FINAL_STATUSES, LIVE_STATUSES, JobStatus, ReasonCode
from tests.examples import ledger_examples
from tests.unit.reservation_core.domain.jobs.life.lives import (
    EVENTS,
    STARTS,
    T0,
    TYPED,
    Allocated,
    kinds,
    queued,
    starting,
)

LIFE = (JobStatus.QUEUED, JobStatus.STARTING, JobStatus.RUNNING, JobStatus.ENDING)


def _place(status: JobStatus) -> int:
    return len(LIFE) if status in FINAL_STATUSES else LIFE.index(status)


def _check_state(row: Reservation) -> None:
    assert (row.outcome is not None) == (row.status is JobStatus.ENDING)
    assert row.outcome is None or row.outcome in FINAL_STATUSES | {JobStatus.QUEUED}
    assert (row.finished_at is not None) == (row.status in FINAL_STATUSES)
    if row.status is JobStatus.RUNNING:
        assert row.started_at is not None
        assert row.ends_at is not None
    if row.status is JobStatus.QUEUED:
        assert (row.range_end, row.started_at, row.ends_at, row.exit_code) == (None, None, None, None)
        assert (row.reason.code is ReasonCode.REQUEUED) == (row.attempt > 0)
    assert row.attempt <= STARTS
    if row.ends_at is not None:
        assert row.range_end is not None
        assert row.started_at is not None
        assert row.ends_at <= row.range_end
        assert row.ends_at - row.started_at <= row.duration


def _check_step(before: Reservation, event: Event, after: Reservation, effects: tuple[object, ...]) -> None:
    done = kinds(effects)
    comes_back = isinstance(event, PodsGone) and before.outcome is JobStatus.QUEUED and before.started_at is None
    assert (after.status is JobStatus.QUEUED) if comes_back else _place(after.status) >= _place(before.status)
    # What ran never waits again.
    assert after.status is not JobStatus.QUEUED or before.started_at is None
    assert (AvoidNodes in done) == (after.outcome is JobStatus.QUEUED and before.outcome is None)
    if before.status in FINAL_STATUSES:
        assert (after, done) == (before, [])
    assert (after != before) == (Record in done)
    assert done.count(Record) <= 1
    assert (ReleaseGpus in done) == (before.status is JobStatus.ENDING and isinstance(event, PodsGone))
    assert (DeletePods in done) == (before.status is not JobStatus.ENDING and after.status is JobStatus.ENDING)
    assert SetRangeEnd in done or comes_back or before.range_end == after.range_end
    assert all(effect.to == after.range_end for effect in effects if isinstance(effect, SetRangeEnd))
    if not isinstance(event, ExtendRequested):
        assert after.duration == before.duration
        # An end never slips by itself: only somebody who asks moves it away.
        if before.range_end is not None and after.range_end is not None:
            assert after.range_end <= before.range_end
        if before.ends_at is not None and not comes_back:
            assert after.ends_at == before.ends_at
    if (after.status in FINAL_STATUSES) != (before.status in FINAL_STATUSES):
        assert WakePlanner in done


@ledger_examples(1000)
@given(st.lists(st.tuples(EVENTS, st.integers(0, 2000), st.booleans()), max_size=25))
def test_any_order_of_events_is_a_legal_life(events: list[tuple[Event | Allocated, int, bool]]) -> None:
    row, now = queued(), T0
    deleted = released = 0
    for event, seconds, twice in events:
        now += timedelta(seconds=seconds)
        if isinstance(event, Allocated):
            row = starting(row, now) if row.status is JobStatus.QUEUED else row
            continue
        for _ in range(1 + twice):
            before = row
            try:
                row, effects = transition(before, event, now)
            except TYPED:
                assert isinstance(event, CancelRequested | ExtendRequested)
                continue
            _check_step(before, event, row, effects)
            _check_state(row)
            deleted += kinds(effects).count(DeletePods)
            released += kinds(effects).count(ReleaseGpus)
            # Each attempt is ended and given back once.
            assert released <= deleted <= row.attempt
            assert released == row.attempt - (row.status in LIVE_STATUSES)
        if twice and not isinstance(event, ExtendRequested):
            assert decide_quietly(row, event, now) is None


def decide_quietly(row: Reservation, event: Event, now: datetime) -> DecidedChange | None:
    """What an event said once more does; a refusal does nothing."""
    try:
        return decide(row, event, now)
    except TYPED:
        return None

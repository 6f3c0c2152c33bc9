"""Means and maxima of steps; which roll-ups a time is read from."""

from datetime import UTC, datetime, timedelta
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.calendar import step_begin
from reservation_core.domain.gpu_use.roll_ups import Level, UsePoint, mean_of, roll_up
from reservation_core.domain.gpu_use.spans import (
    MOST_POINTS,
    Resolution,
    Span,
    finest_step,
    points_in,
    spans_of,
    usual_step,
)

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def sampled(second: int, utilisation: float | None, xid: int | None = None) -> UsePoint:
    level = None if utilisation is None else Level(utilisation, utilisation)
    return UsePoint(NOON + timedelta(seconds=second), 1, utilisation=level, xid=xid)


def test_a_step_without_samples_has_no_point() -> None:
    points = roll_up([sampled(0, 0.5), sampled(10, 1.0), sampled(130, 0.0)], MINUTE)
    assert [point.at for point in points] == [NOON, NOON + 2 * MINUTE]
    assert [(point.samples, point.utilisation) for point in points] == [(2, Level(0.75, 1.0)), (1, Level(0.0, 0.0))]


def test_what_no_sample_says_is_unknown_and_does_not_count() -> None:
    [point] = roll_up([sampled(0, None), sampled(10, 0.5)], MINUTE)
    assert (point.samples, point.utilisation, point.memory) == (2, Level(0.5, 0.5), None)
    [point] = roll_up([sampled(0, None)], MINUTE)
    assert point.utilisation is None
    assert mean_of([], lambda point: point.utilisation) is None


def test_the_last_error_counts() -> None:
    [point] = roll_up([sampled(20, 0, xid=79), sampled(0, 0, xid=13), sampled(30, 0)], MINUTE)
    assert point.xid == 79


seconds = st.integers(0, 3 * 3600).map(lambda tens: 10 * tens)


@given(st.dictionaries(seconds, st.floats(0, 1), max_size=60))
def test_minutes_rolled_up_to_hours_are_the_samples_rolled_up_to_hours(values: dict[int, float]) -> None:
    samples = [sampled(second, value) for second, value in values.items()]
    through_minutes, at_once = roll_up(roll_up(samples, MINUTE), HOUR), roll_up(samples, HOUR)
    for one, other in zip(through_minutes, at_once, strict=True):
        hour = [
            value for second, value in values.items() if step_begin(NOON + timedelta(seconds=second), HOUR) == one.at
        ]
        assert one.samples == other.samples == len(hour)
        assert one.utilisation is not None
        assert other.utilisation is not None
        assert one.utilisation.mean == pytest.approx(other.utilisation.mean) == pytest.approx(fmean(hour))
        assert one.utilisation.most == other.utilisation.most == max(hour)


ROLLED = {Resolution.MINUTES: NOON, Resolution.HOURS: NOON - HOUR}


def test_hours_lie_within_and_finer_ones_fill_both_ends() -> None:
    start, end = NOON - 3 * HOUR - timedelta(seconds=90), NOON + MINUTE
    assert spans_of(start, end, HOUR, ROLLED) == [
        Span(Resolution.SAMPLES, start, start + timedelta(seconds=30)),
        Span(Resolution.MINUTES, start + timedelta(seconds=30), NOON - 3 * HOUR),
        Span(Resolution.HOURS, NOON - 3 * HOUR, NOON - HOUR),
        Span(Resolution.MINUTES, NOON - HOUR, NOON),
        Span(Resolution.SAMPLES, NOON, end),
    ]


def test_a_fine_step_reads_samples_alone() -> None:
    assert spans_of(NOON - HOUR, NOON, timedelta(seconds=10), ROLLED) == [Span(Resolution.SAMPLES, NOON - HOUR, NOON)]
    assert spans_of(NOON, NOON, MINUTE, ROLLED) == []


@given(st.integers(-200_000, 10_000), st.integers(0, 200_000), st.sampled_from([10, 30, 60, 300, 3600, 86_400]))
def test_spans_cover_a_time_once_with_whole_roll_ups(start_s: int, length_s: int, step_s: int) -> None:
    start = NOON + timedelta(seconds=start_s)
    end = start + timedelta(seconds=length_s)
    spans = spans_of(start, end, timedelta(seconds=step_s), ROLLED)
    reached = start
    for span in spans:
        assert span.start == reached < span.end
        reached = span.end
        assert span.resolution.value <= max(step_s, 10)
        if span.resolution is not Resolution.SAMPLES:
            assert step_begin(span.start, span.resolution.step) == span.start
            assert step_begin(span.end, span.resolution.step) == span.end <= ROLLED[span.resolution]
    assert reached == end


@pytest.mark.parametrize(("age", "step_s"), [(DAY, 10), (DAY + MINUTE, 60), (30 * DAY, 60), (30 * DAY + MINUTE, 3600)])
def test_the_finest_step_is_what_is_kept(age: timedelta, step_s: int) -> None:
    assert finest_step(NOON - age, NOON) == timedelta(seconds=step_s)


@given(st.integers(1, 86_400 * 800), st.integers(1, MOST_POINTS), st.sampled_from(list(Resolution)))
def test_the_usual_step_makes_a_graph(length_s: int, gpus: int, finest: Resolution) -> None:
    end = NOON + timedelta(seconds=length_s)
    step = usual_step(NOON, end, gpus, finest.step)
    assert step >= finest.step
    points = points_in(NOON, end, step)
    assert points * gpus <= MOST_POINTS or points == 1


def test_points_are_counted_by_steps_since_1970() -> None:
    assert points_in(NOON, NOON + MINUTE, MINUTE) == 1
    assert points_in(NOON + timedelta(seconds=1), NOON + timedelta(seconds=61), MINUTE) == 2
    assert points_in(NOON, NOON, MINUTE) == 0

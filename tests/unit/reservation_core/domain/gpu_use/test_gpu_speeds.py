"""A GPU that throttles or is slower than its siblings over an hour is found, and one without data never is."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from reservation_core.domain.gpu_use.gpu_speeds import (
    SLICE,
    SpeedOfHour,
    SpeedSlice,
    SpeedTally,
    SpeedVerdict,
    judge_speeds,
)
from reservation_core.domain.gpu_use.samples import GpuSample

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
TEN = timedelta(seconds=10)


def hour(gpu: int, clock: float | None = 1980, **other: object) -> SpeedOfHour:
    values = {"gpu_type": "h100", "job": "job-1", "slices": 6, "busy": 300, "throttled": 0} | other
    return SpeedOfHour(gpu, clock_mhz=clock, **values)  # type: ignore[arg-type]


def slow(*hours: SpeedOfHour) -> dict[int, bool]:
    """Which GPUs are slow; those that are left out are unknown."""
    return {verdict.gpu_id: verdict.why is not None for verdict in judge_speeds(hours)}


def test_why_a_gpu_is_slow() -> None:
    verdicts = judge_speeds([hour(1), hour(2, 1500), hour(3), hour(4, throttled=90)])
    assert [(verdict.gpu_id, verdict.why) for verdict in verdicts] == [
        (1, None),
        (2, "it is slower than its siblings (1500 MHz over an hour, 1980 MHz of its siblings in job-1)"),
        (3, None),
        (4, "it throttled in 30% of the hour's busy samples"),
    ]


def test_one_fifth_is_the_limit() -> None:
    assert slow(hour(1, 1000), hour(2, 801)) == {1: False, 2: False}
    assert slow(hour(1, 1000), hour(2, 800)) == {1: False, 2: True}
    assert slow(hour(1, 1900), hour(2, 1520)) == {1: False, 2: True}
    assert slow(hour(1, throttled=60)) == {1: True}
    assert slow(hour(1, throttled=59)) == {1: False}


@pytest.mark.parametrize(
    "other",
    [
        hour(2, 800, job="job-2"),
        hour(2, 800, gpu_type="a100"),
        hour(2, 800, job=None),
        hour(2, None),
        hour(2, 800, slices=5),
    ],
)
def test_only_siblings_that_were_busy_all_the_hour_are_compared(other: SpeedOfHour) -> None:
    assert slow(hour(1, throttled=None), other).get(2, False) is False
    assert slow(hour(1, throttled=None), other).get(1, False) is False


def test_no_data_is_no_verdict() -> None:
    assert slow() == {}
    assert slow(hour(1, None, throttled=None), hour(2, throttled=None)) == {}
    assert slow(hour(1, slices=5, throttled=300)) == {}


def test_random_hours_against_the_oracle() -> None:
    chance = random.Random(7)
    for _ in range(500):
        hours = [
            hour(
                gpu,
                chance.choice([None, 600, 1000, 1500, 1980]),
                job=chance.choice([None, "job-1", "job-2"]),
                gpu_type=chance.choice(["h100", "a100"]),
                slices=chance.choice([3, 6, 6, 6]),
                throttled=chance.choice([None, 0, 30, 100]),
            )
            for gpu in range(chance.randrange(1, 9))
        ]
        assert {v.gpu_id: bool(v.why) for v in judge_speeds(hours)} == oracle(hours)


def oracle(hours: list[SpeedOfHour]) -> dict[int, bool]:
    found: dict[int, bool] = {}
    for one in hours:
        if one.slices < 6:
            continue
        clocks = sorted(
            other.clock_mhz
            for other in hours
            if other is not one
            and other.slices >= 6
            and other.clock_mhz is not None
            and one.job is not None
            and (other.job, other.gpu_type) == (one.job, one.gpu_type)
        )
        half = len(clocks) // 2
        middle = None if not clocks else clocks[half] if len(clocks) % 2 else (clocks[half - 1] + clocks[half]) / 2
        compared = middle is not None and one.clock_mhz is not None
        if one.throttled is not None or compared:
            throttles = one.throttled is not None and 5 * one.throttled >= one.busy
            slower = compared and one.clock_mhz <= 0.8 * middle  # type: ignore[operator]
            found[one.gpu_id] = throttles or slower
    return found


def test_slices_count_busy_samples_alone() -> None:
    tally, over = SpeedTally(), []
    for step in range(121):
        at = BEGIN + step * TEN
        busy = 0.9 if step % 2 else 0.1
        over += tally.add(
            [
                GpuSample("GPU-a", at, busy, clock_mhz=1000 if step < 60 else 2000, throttled=step < 10),
                GpuSample("GPU-b", at, None, clock_mhz=100, throttled=True),
                GpuSample("GPU-c", at, 1.0),
            ]
        )
    assert over == [
        SpeedSlice("GPU-a", BEGIN, 30, 5, 1000),
        SpeedSlice("GPU-c", BEGIN, 60, None, None),
        SpeedSlice("GPU-a", BEGIN + SLICE, 30, 0, 2000),
        SpeedSlice("GPU-c", BEGIN + SLICE, 60, None, None),
    ]
    assert isinstance(judge_speeds([hour(1)])[0], SpeedVerdict)

"""Graphs of the use of GPUs in a terminal."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from gpu_dev.display.use_graphs import WIDTH, idle_since, length_of_mark, mean_and_most, sparkline
from gpu_dev.wire.nodes import GpuUseOut, UseLevel, UseOut, UsePointOut

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def point(
    minute: int, mean: float | None, *, samples: int = 6, xid: int | None = None, ecc: int | None = None
) -> UsePointOut:
    level = None if mean is None else UseLevel(mean=mean, max=mean)
    return UsePointOut(
        at=NOON + minute * MINUTE, samples=samples, utilisation=level, memory_bytes=None, power_w=None,
        temperature_c=None, ecc_uncorrected=ecc, xid=xid, processes=None,
    )  # fmt: skip


def shown(minutes: int, *points: UsePointOut) -> tuple[UseOut, GpuUseOut]:
    gpu = GpuUseOut(node="n", index=0, uuid=None, gpu_type="h100", memory_bytes=None, points=list(points))
    end = NOON + minutes * MINUTE
    return UseOut(start=NOON, end=end, step=MINUTE, simulated=False, gpus=[gpu]), gpu


def test_a_mark_a_step_and_none_is_not_zero() -> None:
    found = shown(6, point(0, 0.0), point(1, 0.5), point(2, 1.0), point(4, None), point(5, 0.124))
    assert sparkline(*found) == "▁▅█··▁"


def test_many_steps_share_a_mark_by_their_samples() -> None:
    points = [point(minute, 1.0 if minute % 2 else 0.0, samples=9 if minute % 2 else 3) for minute in range(2 * WIDTH)]
    assert sparkline(*shown(2 * WIDTH, *points)) == "▇" * WIDTH


@pytest.mark.parametrize("step_s", [10, 60, 3600])
@pytest.mark.parametrize("phase", [0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("steps", [1, 5, 20, 59, 60, 61, 90, 119, 400])
@pytest.mark.parametrize("rest", [0, 0.05, 0.95])
def test_a_time_full_of_samples_has_no_gap(step_s: int, phase: float, steps: int, rest: float) -> None:
    step = timedelta(seconds=step_s)
    start = NOON + phase * step
    end = start + (steps + rest) * step
    times = [NOON + n * step for n in range(steps + 2) if NOON + n * step < end]
    gpu = GpuUseOut(
        node="n", index=0, uuid=None, gpu_type="h100", memory_bytes=None,
        points=[replace(point(0, 0.5), at=at) for at in times],
    )  # fmt: skip
    found = UseOut(start=start, end=end, step=step, simulated=False, gpus=[gpu])
    assert sparkline(found, gpu) == "▅" * min(WIDTH, len(times))
    # A hole in the middle is still one.
    if 2 < len(times) <= WIDTH:
        del gpu.points[1]
        assert sparkline(found, gpu) == "▅·" + "▅" * (len(times) - 2)


def test_a_mark_is_a_step_or_several() -> None:
    assert length_of_mark(shown(6)[0]) == MINUTE
    assert length_of_mark(shown(2 * WIDTH)[0]) == 2 * MINUTE


def test_without_samples_there_is_no_graph() -> None:
    assert sparkline(*shown(5)) == ""
    assert sparkline(*shown(0)) == ""
    assert mean_and_most(shown(5, point(0, None))[1], "utilisation") is None


def test_the_mean_weighs_by_samples() -> None:
    level = mean_and_most(shown(2, point(0, 1.0, samples=1), point(1, 0.0, samples=3))[1], "utilisation")
    assert level is not None
    assert (level.mean, level.max) == (pytest.approx(0.25), 1.0)


@pytest.mark.parametrize(
    ("means", "since"),
    [
        ([0.9, 0.0, 0.05, 0.09], 1),
        ([0.0, 0.0, 0.0, 0.0], 0),
        ([0.0, 0.0, 0.0, 0.1], None),
        ([0.0, None, 0.0, 0.0], 2),
        ([0.0, 0.0, 0.0, None], None),
        ([], None),
    ],
)
def test_idle_since_the_last_use_or_the_last_step_without_samples(means: list[float | None], since: int | None) -> None:
    found, _ = shown(len(means) or 4, *(point(minute, mean) for minute, mean in enumerate(means)))
    assert idle_since(found) == (None if since is None else NOON + since * MINUTE)


def test_a_gap_is_use_but_the_newest_step_may_not_have_a_sample_yet() -> None:
    found, gpu = shown(4, *(point(minute, 0.0) for minute in (0, 2, 3)))
    assert idle_since(found) == NOON + 2 * MINUTE
    begun = replace(gpu, points=[point(minute, 0.0) for minute in (1, 2)])
    assert idle_since(replace(found, gpus=[begun])) == NOON + MINUTE
    assert idle_since(replace(found, gpus=[replace(gpu, points=[point(1, 0.0)])])) is None


def test_one_busy_gpu_keeps_a_job_from_being_idle() -> None:
    found, idle = shown(3, *(point(minute, 0.0) for minute in range(3)))
    later = replace(idle, points=[point(0, 0.5), point(1, 0.0), point(2, 0.0)])
    busy = replace(idle, points=[*idle.points[:2], point(2, 0.5)])
    assert idle_since(replace(found, gpus=[idle, later])) == NOON + MINUTE
    assert idle_since(replace(found, gpus=[idle, busy])) is None
    assert idle_since(replace(found, gpus=[])) is None

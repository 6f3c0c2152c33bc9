"""Graphs of the use of GPUs in a terminal."""

from datetime import UTC, datetime, timedelta

import pytest

from gpu_dev.display.use_graphs import WIDTH, errors_of, mean_and_most, sparkline
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


def test_without_samples_there_is_no_graph() -> None:
    assert sparkline(*shown(5)) == ""
    assert sparkline(*shown(0)) == ""
    assert mean_and_most(shown(5, point(0, None))[1], "utilisation") is None


def test_the_mean_weighs_by_samples() -> None:
    level = mean_and_most(shown(2, point(0, 1.0, samples=1), point(1, 0.0, samples=3))[1], "utilisation")
    assert level is not None
    assert (level.mean, level.max) == (pytest.approx(0.25), 1.0)


def test_errors_in_words() -> None:
    assert errors_of(shown(3, point(0, 0, xid=13, ecc=2), point(1, 0, xid=79), point(2, 0, ecc=5))[1]) == [
        "Xid 79", "3 new ECC",
    ]  # fmt: skip
    assert errors_of(shown(2, point(0, 0, ecc=2), point(1, 0, ecc=2))[1]) == []

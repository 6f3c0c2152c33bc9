"""What a sample may say."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from reservation_core.domain.gpu_use.samples import GpuProcess, GpuSample, ImplausibleSampleError, timely_times

AT = datetime(2030, 1, 1, 12, tzinfo=UTC)


def test_what_is_not_known_is_not_zero() -> None:
    sample = GpuSample("GPU-1", AT)
    assert (sample.utilisation, sample.memory_used, sample.processes) == (None, None, None)


@pytest.mark.parametrize(
    "values",
    [
        {"utilisation": 1.01},
        {"utilisation": -0.01},
        {"utilisation": float("nan")},
        {"memory_used": -1},
        {"memory_used": 9, "memory_total": 8},
        {"memory_total": 2**50},
        {"power_w": 1e9},
        {"temperature_c": 1000},
        {"ecc_uncorrected": 2**31},
        {"xid": 0},
        {"processes": (GpuProcess(1, None),) * 10_001},
    ],
)
def test_values_have_bounds_and_the_one_that_is_wrong_is_named(values: dict[str, Any]) -> None:
    with pytest.raises(ImplausibleSampleError, match=f"`{next(iter(values))}`"):
        GpuSample("GPU-1", AT, **values)


@pytest.mark.parametrize(
    ("uuid", "at", "named"),
    [
        ("", AT, "uuid"),
        ("x" * 129, AT, "uuid"),
        ("GPU-1", AT.replace(tzinfo=None), "at"),
        ("GPU-1", AT.astimezone(timezone(timedelta(hours=1))), "at"),
    ],
)
def test_a_sample_is_of_a_gpu_at_a_time(uuid: str, at: datetime, named: str) -> None:
    with pytest.raises(ImplausibleSampleError, match=named):
        GpuSample(uuid, at)


def test_late_and_early_samples() -> None:
    assert timely_times(AT) == (AT - timedelta(days=1), AT + timedelta(seconds=10))

"""The use of GPUs as lines of characters, one a GPU."""

from collections.abc import Sequence
from datetime import timedelta

from gpu_dev.wire.nodes import GpuUseOut, UseLevel, UseOut

WIDTH = 60
NO_DATA = "no data"
_MARKS = "▁▂▃▄▅▆▇█"
_UNKNOWN = "·"


def sparkline(found: UseOut, gpu: GpuUseOut) -> str:
    """The mean utilisation over time, at most `WIDTH` characters; `·` where there are no samples, no line without any.

    A higher mark is for more: the lowest of eight is for less than an eighth.
    """
    columns = column_count(found)
    weights, sums = [0] * columns, [0.0] * columns
    whole = max(found.end - found.start, timedelta(microseconds=1))
    for point in gpu.points:
        if point.utilisation is not None:
            place = min(columns - 1, max(0, int(columns * ((point.at - found.start) / whole))))
            weights[place] += point.samples
            sums[place] += point.samples * point.utilisation.mean
    if not any(weights):
        return ""
    return "".join(
        _MARKS[min(len(_MARKS) - 1, int(value / weight * len(_MARKS)))] if weight else _UNKNOWN
        for value, weight in zip(sums, weights, strict=True)
    )


def column_count(found: UseOut) -> int:
    """One character a step, as far as they fit into the width."""
    return max(1, min(WIDTH, -((found.start - found.end) // found.step)))


def mean_and_most(gpu: GpuUseOut, name: str) -> UseLevel | None:
    """The mean by samples and the maximum of `utilisation`, `memory_bytes` or `power_w`; None: no data."""
    known = [(point.samples, level) for point in gpu.points if (level := getattr(point, name)) is not None]
    if not known:
        return None
    weight = sum(samples for samples, _ in known)
    mean = sum(samples * level.mean for samples, level in known) / weight
    return UseLevel(mean=mean, max=max(level.max for _, level in known))


def errors_of(gpu: GpuUseOut) -> Sequence[str]:
    """Xid and uncorrected ECC errors in words."""
    last = next((point.xid for point in reversed(gpu.points) if point.xid is not None), None)
    counts = [point.ecc_uncorrected for point in gpu.points if point.ecc_uncorrected is not None]
    words = [] if last is None else [f"Xid {last}"]
    return words + ([f"{counts[-1] - counts[0]} new ECC"] if counts and counts[-1] > counts[0] else [])

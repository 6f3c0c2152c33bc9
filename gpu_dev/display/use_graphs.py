"""The use of GPUs as lines of characters, one a GPU."""

from collections.abc import Collection
from datetime import datetime, timedelta

from gpu_dev.wire.nodes import GpuUseOut, JobUseOut, UseLevel, UseOut
from reservation_core.domain.calendar import step_begin
from reservation_core.domain.gpu_use.figures import use_words

WIDTH = 60
NO_DATA = "no data"
_MARKS = "▁▂▃▄▅▆▇█"
_UNKNOWN = "·"
IDLE_BELOW = 0.1


def sparkline(found: UseOut, gpu: GpuUseOut) -> str:
    """The mean utilisation over time, at most `WIDTH` characters; `·` where there are no samples, no line without any.

    A higher mark is for more: the lowest of eight is for less than an eighth.
    """
    first, steps = step_begin(found.start, found.step), _step_count(found)
    columns = min(WIDTH, steps)
    weights, sums = [0] * columns, [0.0] * columns
    for point in gpu.points:
        if point.utilisation is not None:
            place = min(columns - 1, max(0, (point.at - first) // found.step * columns // steps))
            weights[place] += point.samples
            sums[place] += point.samples * point.utilisation.mean
    if not any(weights):
        return ""
    return "".join(
        _MARKS[min(len(_MARKS) - 1, int(value / weight * len(_MARKS)))] if weight else _UNKNOWN
        for value, weight in zip(sums, weights, strict=True)
    )


def length_of_mark(found: UseOut) -> timedelta:
    """The mean length of time that a mark stands for: a step, or several where they don't fit into the width."""
    steps = _step_count(found)
    return found.step * steps / min(WIDTH, steps)


def _step_count(found: UseOut) -> int:
    """The steps that the time lies in, counted since 1970 as points are: the first may begin before the time."""
    return max(1, -((step_begin(found.start, found.step) - found.end) // found.step))


def mean_and_most(gpu: GpuUseOut, name: str) -> UseLevel | None:
    """The mean by samples and the maximum of `utilisation`, `memory_bytes` or `power_w`; None: no data."""
    known = [(point.samples, level) for point in gpu.points if (level := getattr(point, name)) is not None]
    if not known:
        return None
    weight = sum(samples for samples, _ in known)
    mean = sum(samples * level.mean for samples, level in known) / weight
    return UseLevel(mean=mean, max=max(level.max for _, level in known))


def idle_since(found: UseOut, own: Collection[tuple[str, int]] | None = None) -> datetime | None:
    """Since when all GPUs are used for less than `IDLE_BELOW`, step by step until now; None where one is not.

    Of `own`, by node and index, if these are given: there may be others that an earlier attempt had.
    A step without samples counts as use, as it does for rules about idle GPUs.
    """
    begins: list[datetime] = []
    for gpu in found.gpus:
        if own is not None and (gpu.node, gpu.index) not in own:
            continue
        begin = None
        expected = found.end
        for point in reversed(gpu.points):
            is_idle = point.utilisation is not None and point.utilisation.mean < IDLE_BELOW
            # The newest step may not be over, or not have begun with a sample.
            late = expected - point.at > (2 * found.step if begin is None else found.step)
            if late or not is_idle:
                break
            begin = expected = point.at
        if begin is None:
            return None
        begins.append(max(begin, found.start))
    return max(begins, default=None)


def use_line(use: JobUseOut) -> str:
    """What a job used of its GPUs, and what would have been enough."""
    return use_words(use.gpus, use.used, (use.memory_peak, use.memory_bytes), use.enough, use.sampled)

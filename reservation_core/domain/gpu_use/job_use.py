"""What a job used of its GPUs, and how many would have been enough. Without samples it says nothing."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import ceil

from reservation_core.domain.gpu_use.figures import MOSTLY
from reservation_core.domain.gpu_use.roll_ups import UsePoint

_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class JobUse:
    """How a job used its `gpus`: as much as `used` of them all the time, on average.

    `memory_peak` is the most that was in use on one GPU, of `memory_bytes`; None: no sample says. `enough` GPUs would
    have done the same work in the same time, with room for the memory; None: unknown. `sampled` (0 to 1) is the part of
    the time that samples show.
    """

    gpus: int
    used: float
    memory_peak: int | None
    memory_bytes: int | None
    enough: int | None
    sampled: float


def sum_up_use(
    gpus: int, found: Iterable[tuple[int | None, Sequence[UsePoint]]], held: timedelta, every: timedelta
) -> JobUse | None:
    """The use of a job's GPUs, with the memory and the points of each; None where no sample gives a utilisation.

    `held` is for how long it had them, summed over GPUs; `every` is the time between two samples.
    """
    known, busy = 0, 0.0
    peaks: list[tuple[float, int | None]] = []
    for memory_bytes, points in found:
        peaks += [(most, memory_bytes)] if (most := _peak(points)) is not None else []
        for point in points:
            if point.utilisation is not None:
                known += point.samples - point.unknown
                busy += (point.samples - point.unknown) * point.utilisation.mean
    if not known:
        return None
    peaks.sort(key=lambda found: found[0], reverse=True)
    peak, memory_bytes = peaks[0] if peaks else (None, None)
    used = gpus * busy / known
    sampled = min(1.0, known * every / held) if held else 1.0
    enough = _enough(gpus, used, [most for most, _ in peaks], memory_bytes) if sampled >= MOSTLY else None
    return JobUse(gpus, used, None if peak is None else round(peak), memory_bytes, enough, sampled)


def _peak(points: Iterable[UsePoint]) -> float | None:
    return max((point.memory.most for point in points if point.memory is not None), default=None)


def _enough(gpus: int, used: float, peaks: Sequence[float], memory_bytes: int | None) -> int | None:
    """The least number of GPUs by the use and by the memory of all; `peaks` of single GPUs, the largest first.

    A GPU whose memory is unknown counts with the largest peak, and of several attempts the largest ones count.
    """
    if not peaks or not memory_bytes:
        return None
    memory = sum(peaks[:gpus]) + max(0, gpus - len(peaks)) * peaks[0]
    return min(gpus, max(1, ceil(used - _ROUNDING), ceil(memory / memory_bytes - _ROUNDING)))

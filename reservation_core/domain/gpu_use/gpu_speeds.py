"""Whether a GPU throttles, or is slower than its siblings. No data is never a reason, and never takes one back.

Only busy samples count: an idle GPU lowers its clock. Siblings are GPUs of the same type in the same job, as GPUs of
other jobs may run at other clocks for good reasons.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from reservation_core.domain.calendar import step_begin
from reservation_core.domain.gpu_use.samples import GpuSample

SLICE = timedelta(minutes=10)
SLICES = 6
"""How many slices an hour has: each of them needs busy samples."""
BUSY_FROM = 0.5
"""From which utilisation on a sample counts."""
SLOWER_BY = 0.2
"""By how much a GPU must be slower, and which part of its busy samples throttled."""


@dataclass(frozen=True, slots=True)
class SpeedSlice:
    """How fast a GPU ran in the ten minutes from `at`, over its `busy` samples; None: no sample says."""

    uuid: str
    at: datetime
    busy: int
    throttled: int | None
    clock_mhz: float | None


@dataclass(frozen=True, slots=True)
class SpeedOfHour:
    """How fast a GPU ran over an hour: in how many slices it was busy, and of which job it was all the time."""

    gpu_id: int
    gpu_type: str
    job: str | None
    slices: int
    busy: int
    throttled: int | None
    clock_mhz: float | None


@dataclass(frozen=True, slots=True)
class SpeedVerdict:
    """A GPU about whose speed something is known: why it is slow, or None where it is not."""

    gpu_id: int
    why: str | None


class SpeedTally:
    """Sums samples up by slices of ten minutes, in memory: what a restart loses is no data."""

    def __init__(self) -> None:
        self._at: datetime | None = None
        self._samples: dict[str, list[tuple[bool | None, int | None]]] = defaultdict(list)

    def add(self, samples: Iterable[GpuSample]) -> list[SpeedSlice]:
        """Note samples in the order of their times, and return the slices that ended before them."""
        over: list[SpeedSlice] = []
        for sample in samples:
            at = step_begin(sample.at, SLICE)
            if at != self._at:
                over += self._take()
                self._at = at
            if sample.utilisation is not None and sample.utilisation >= BUSY_FROM:
                self._samples[sample.uuid].append((sample.throttled, sample.clock_mhz))
        return over

    def _take(self) -> list[SpeedSlice]:
        found, at = self._samples, self._at
        self._samples = defaultdict(list)
        return [] if at is None else [_slice(uuid, at, values) for uuid, values in sorted(found.items())]


def judge_speeds(hours: Sequence[SpeedOfHour]) -> list[SpeedVerdict]:
    """Decide about each GPU that was busy in the whole hour."""
    known = [hour for hour in hours if hour.slices >= SLICES]
    siblings: dict[tuple[str, str], list[SpeedOfHour]] = defaultdict(list)
    for hour in known:
        if hour.job is not None and hour.clock_mhz is not None:
            siblings[hour.job, hour.gpu_type].append(hour)
    verdicts = []
    for hour in known:
        others = [] if hour.job is None else siblings[hour.job, hour.gpu_type]
        clocks = [other.clock_mhz for other in others if other.gpu_id != hour.gpu_id and other.clock_mhz is not None]
        verdict = _judge(hour, median(clocks) if clocks else None)
        if verdict is not None:
            verdicts.append(verdict)
    return verdicts


def _judge(hour: SpeedOfHour, usual_mhz: float | None) -> SpeedVerdict | None:
    throttles = None if hour.throttled is None else hour.throttled / hour.busy
    if throttles is not None and throttles >= SLOWER_BY:
        return SpeedVerdict(hour.gpu_id, f"it throttled in {throttles:.0%} of the hour's busy samples")
    slower = None if usual_mhz is None or hour.clock_mhz is None else hour.clock_mhz <= (1 - SLOWER_BY) * usual_mhz
    if slower:
        clocks = f"{hour.clock_mhz:.0f} MHz over an hour, {usual_mhz:.0f} MHz of its siblings in {hour.job}"
        return SpeedVerdict(hour.gpu_id, f"it is slower than its siblings ({clocks})")
    return None if throttles is None and slower is None else SpeedVerdict(hour.gpu_id, None)


def _slice(uuid: str, at: datetime, values: Sequence[tuple[bool | None, int | None]]) -> SpeedSlice:
    throttles = [throttled for throttled, _ in values if throttled is not None]
    clocks = [clock for _, clock in values if clock is not None]
    # Where only some samples say it, the others count as not throttled.
    return SpeedSlice(
        uuid,
        at,
        len(values),
        sum(throttles) if throttles else None,
        sum(clocks) / len(clocks) if clocks else None,
    )

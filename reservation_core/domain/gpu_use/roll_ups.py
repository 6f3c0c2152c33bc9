"""Points of a graph: means and maxima of the samples in a step of time. A step without samples has no point."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from reservation_core.domain.calendar import step_begin


@dataclass(frozen=True, slots=True)
class Level:
    """A mean and a maximum."""

    mean: float
    most: float


@dataclass(frozen=True, slots=True)
class UsePoint:
    """The use of a GPU in the step that begins at `at`, by so many samples.

    `memory` is in bytes, `power` in watts, `temperature` in degrees Celsius; None: no sample says. `ecc_uncorrected`
    and `processes` are the most, `xid` is the last. `unknown` of the samples give no utilisation.
    """

    at: datetime
    samples: int
    utilisation: Level | None = None
    memory: Level | None = None
    power: Level | None = None
    temperature: Level | None = None
    ecc_uncorrected: int | None = None
    xid: int | None = None
    processes: int | None = None
    unknown: int = 0


def roll_up(points: Iterable[UsePoint], step: timedelta) -> list[UsePoint]:
    """One point for each step in which there are points, in order. Means weigh by samples."""
    steps: dict[datetime, list[UsePoint]] = {}
    for point in sorted(points, key=lambda point: point.at):
        steps.setdefault(step_begin(point.at, step), []).append(point)
    return [_merge(begin, found) for begin, found in steps.items()]


def mean_of(points: Iterable[UsePoint], level: Callable[[UsePoint], Level | None]) -> Level | None:
    """The mean and the maximum over points; None where none of them says."""
    known = [(point.samples, found) for point in points if (found := level(point)) is not None]
    if not known:
        return None
    weight = sum(samples for samples, _ in known)
    return Level(sum(samples * found.mean for samples, found in known) / weight, max(found.most for _, found in known))


def _merge(at: datetime, points: Sequence[UsePoint]) -> UsePoint:
    return UsePoint(
        at,
        sum(point.samples for point in points),
        utilisation=mean_of(points, lambda point: point.utilisation),
        memory=mean_of(points, lambda point: point.memory),
        power=mean_of(points, lambda point: point.power),
        temperature=mean_of(points, lambda point: point.temperature),
        ecc_uncorrected=max(_known(point.ecc_uncorrected for point in points), default=None),
        xid=next(_known(point.xid for point in reversed(points)), None),
        processes=max(_known(point.processes for point in points), default=None),
        unknown=sum(point.unknown for point in points),
    )


def _known(values: Iterable[int | None]) -> Iterator[int]:
    return (value for value in values if value is not None)

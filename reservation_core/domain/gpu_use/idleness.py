"""Whether a job's GPUs are idle, and what follows: no sample, or a late one, counts as use.

A job is judged by the steps of its window. A step's part without samples counts as use, like a step without any. So a
job whose samples are missing is not idle, and neither is one that has not run for a whole window.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

from reservation_core.domain.calendar import step_begin
from reservation_core.domain.gpu_use.idle_rules import LONGEST, IdleRule, IdleThen, IdleWarning
from reservation_core.domain.gpu_use.roll_ups import UsePoint

_MINUTE = timedelta(minutes=1)
_SECOND = timedelta(seconds=1)
_PARTS = 20
"""The steps of a short window."""
_SAMPLES = 6
"""The least samples in a step: one that comes a little early or late then makes little difference."""
_ROUNDING = 1e-9
"""A mean that differs less from a limit is not below it."""
_FRESH = 3
"""Of how many samples' time one must be there for a release."""


@dataclass(frozen=True, slots=True)
class WatchedJob:
    """A running job. `counts_from`: its start, or when it was kept, extended or used last after a warning."""

    gpus: int
    counts_from: datetime
    warning: IdleWarning | None = None


@dataclass(frozen=True, slots=True)
class IdleWindow:
    """Which steps decide at a time: those in [begin, end), and of a warned job all since its warning.

    `every` is the time between two samples.
    """

    begin: datetime
    end: datetime
    step: timedelta
    every: timedelta

    @classmethod
    def at(cls, now: datetime, rule: IdleRule, every: timedelta) -> "IdleWindow":
        """The window of a rule, in whole steps that are over."""
        step = idle_step(rule.window, every)
        end = step_begin(now, step)
        return cls(end - step * ceil(rule.window / step), end, step, every)

    def reads_from(self, warning: IdleWarning | None) -> datetime:
        """From when on points are needed: whole steps, also where a warning is older."""
        return self.begin if warning is None else min(self.begin, step_begin(self.looks_back_to(warning), self.step))

    def looks_back_to(self, warning: IdleWarning) -> datetime:
        """Since when use voids a warning: since it was given, but for at most a day, as long as samples are kept."""
        return max(warning.warned_at, self.end - LONGEST)

    def fresh_from(self, warning: IdleWarning, now: datetime) -> datetime:
        """Since when a release needs a sample of each GPU: steps do not tell whether the last minute has any."""
        return max(warning.warned_at, now - _FRESH * self.every)


@dataclass(frozen=True, slots=True)
class WarningDue:
    """The job is to be warned."""

    warning: IdleWarning


@dataclass(frozen=True, slots=True)
class WarningOver:
    """The warning is void: the GPUs were used, there are no samples, or the rule has changed."""


@dataclass(frozen=True, slots=True)
class ReleaseDue:
    """The job was warned in time and is idle still: its GPUs are to be released. `requeue`: it waits again then."""

    requeue: bool = False


IdleVerdict = WarningDue | WarningOver | ReleaseDue
"""The next step with a job."""


def idle_step(window: timedelta, every: timedelta) -> timedelta:
    """The steps in which a window is judged: a minute, shorter for a short window, longer for rare samples."""
    step = max(min(window / _PARTS, _MINUTE), _SAMPLES * every)
    unit = _MINUTE if step > _MINUTE else _SECOND
    return unit * ceil(step / unit)


def judge(
    job: WatchedJob,
    rule: IdleRule | None,
    use: Mapping[int, Sequence[UsePoint]],
    fresh: Set[int],
    window: IdleWindow,
    now: datetime,
) -> IdleVerdict | None:
    """Decide about a job by the points of its GPUs since `window.reads_from(job.warning)`.

    `fresh`: the GPUs with a sample since `window.fresh_from(job.warning, now)`.
    """
    warning = job.warning
    idle = rule is not None and _is_idle(job, rule, use, window, now)
    if warning is None:
        if rule is None or not idle:
            return None
        return WarningDue(IdleWarning(window.begin, now, now + rule.grace if rule.then.gives_back else None))
    releases = warning.release_at is not None
    if rule is None or not idle or rule.then.gives_back != releases or warning.warned_at > now:
        return WarningOver()
    if any(_used_since(window.looks_back_to(warning), points, rule.below, window) for points in use.values()):
        return WarningOver()
    if warning.release_at is None or now < max(warning.release_at, warning.warned_at + rule.grace):
        return None
    return ReleaseDue(rule.then is IdleThen.REQUEUE) if fresh >= use.keys() else None


def _is_idle(
    job: WatchedJob, rule: IdleRule, use: Mapping[int, Sequence[UsePoint]], window: IdleWindow, now: datetime
) -> bool:
    """Whether each GPU of the job was idle in the whole window, and is now."""
    return (
        len(use) == job.gpus
        and window.begin >= job.counts_from
        and all(
            _mean(points, window.begin, window) < rule.below - _ROUNDING and _is_quiet(points, rule.below, window, now)
            for points in use.values()
        )
    )


def _is_quiet(points: Sequence[UsePoint], below: float, window: IdleWindow, now: datetime) -> bool:
    """Whether the last step that is over has samples, and none since its begin shows use."""
    last = window.end - window.step
    recent = [point for point in points if last <= point.at <= now and point.utilisation is not None]
    return any(point.at < window.end for point in recent) and not any(_shows_use(point, below) for point in recent)


def _used_since(at: datetime, points: Sequence[UsePoint], below: float, window: IdleWindow) -> bool:
    """Whether a GPU was used since a time, or too many of its samples since are missing.

    The mean is only of a time as long as the window: of a minute, one missing sample would be too many.
    """
    if any(point.at + window.step > at and _shows_use(point, below) for point in points):
        return True
    first = step_begin(at, window.step) + window.step
    return first <= window.begin and _mean(points, first, window) >= below - _ROUNDING


def _mean(points: Sequence[UsePoint], begin: datetime, window: IdleWindow) -> float:
    """The mean utilisation from a step's begin to the window's end; a part of which no sample says it counts as 1."""
    idle = 0.0
    for point in points:
        if begin <= point.at < window.end and point.utilisation is not None:
            known = point.samples - point.unknown
            idle += min(1.0, known * window.every / window.step) * (1 - point.utilisation.mean)
    return 1 - idle / ((window.end - begin) / window.step)


def _shows_use(point: UsePoint, below: float) -> bool:
    return point.utilisation is not None and point.utilisation.most >= below

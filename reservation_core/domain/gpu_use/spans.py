"""From which roll-ups a time is read, and in which steps.

A reading shows the GPU's holder alone: a roll-up that reaches over an end of the time would mix in others' use.
Roll-ups are read where they lie within, and both ends from finer ones, as far as these are kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from reservation_core.domain.calendar import step_begin
from reservation_core.domain.gpu_use.samples import MINUTES_KEPT, SAMPLES_KEPT

MOST_POINTS = 5_000
"""The points of an answer, of all GPUs together."""
_POINTS_OF_A_GPU = 400
_MOST_USUAL = timedelta(days=1)


class Resolution(Enum):
    """The steps that are stored, in seconds."""

    SAMPLES = 10
    MINUTES = 60
    HOURS = 3600

    @property
    def step(self) -> timedelta:
        return timedelta(seconds=self.value)


_FINER = {Resolution.HOURS: Resolution.MINUTES, Resolution.MINUTES: Resolution.SAMPLES}
_USUAL_STEPS_S = (10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200, 86_400)


@dataclass(frozen=True, slots=True)
class Span:
    """A time to read from roll-ups of one resolution: [start, end)."""

    resolution: Resolution
    start: datetime
    end: datetime


def finest_step(start: datetime, now: datetime) -> timedelta:
    """The finest step that is kept since `start`."""
    if start >= now - SAMPLES_KEPT:
        return Resolution.SAMPLES.step
    return Resolution.MINUTES.step if start >= now - MINUTES_KEPT else Resolution.HOURS.step


def step_fault(step: timedelta) -> str | None:
    """Why steps can't have such a length, in words that go on after its name; None if they can."""
    if step < Resolution.SAMPLES.step:
        return "must be at least 10 seconds."
    if step < Resolution.MINUTES.step:
        return None
    if step % Resolution.MINUTES.step:
        return "must be whole minutes, from a minute on."
    return (
        "must be whole hours, from an hour on."
        if step > Resolution.HOURS.step and step % Resolution.HOURS.step
        else None
    )


def usual_step(start: datetime, end: datetime, gpus: int, finest: timedelta) -> timedelta:
    """The finest usual step that makes a graph of each GPU; a day or more where nothing else does."""
    most = min(_POINTS_OF_A_GPU, max(1, MOST_POINTS // max(1, gpus)))
    for seconds in _USUAL_STEPS_S:
        step = timedelta(seconds=seconds)
        if step >= finest and points_in(start, end, step) <= most:
            return step
    days = 1
    while points_in(start, end, days * _MOST_USUAL) > most:
        days *= 2
    return days * _MOST_USUAL


def points_in(start: datetime, end: datetime, step: timedelta) -> int:
    """The most points between two times."""
    return 0 if end <= start else -((step_begin(start, step) - end) // step)


def spans_of(start: datetime, end: datetime, step: timedelta, rolled: Mapping[Resolution, datetime]) -> list[Span]:
    """What to read for a time in such steps; `rolled`: until when the roll-ups of a resolution are made."""
    fitting = [resolution for resolution in Resolution if resolution.step <= step]
    return _spans(start, end, max(fitting, key=lambda resolution: resolution.value, default=Resolution.SAMPLES), rolled)


def _spans(start: datetime, end: datetime, resolution: Resolution, rolled: Mapping[Resolution, datetime]) -> list[Span]:
    if end <= start:
        return []
    finer = _FINER.get(resolution)
    if finer is None:
        return [Span(resolution, start, end)]
    whole = step_begin(start, resolution.step)
    first = whole if whole == start else whole + resolution.step
    last = step_begin(min(end, rolled[resolution]), resolution.step)
    if last <= first:
        return _spans(start, end, finer, rolled)
    return [*_spans(start, first, finer, rolled), Span(resolution, first, last), *_spans(last, end, finer, rolled)]

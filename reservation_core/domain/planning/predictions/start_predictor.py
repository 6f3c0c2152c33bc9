"""Predicted starts of waiting jobs: by p50 a job starts in half of all cases, by p90 in nine of ten.

The queue is run forward (`queue_run`) with run times as they were lately (`run_time_shares`), and the waits that come
out are made longer or shorter by how far such waits were off lately (`wait_calibration`). No start is predicted for
later than its promise. Predictions end nothing and promise nothing.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from reservation_core.domain.calendar import to_micros, to_moment
from reservation_core.domain.jobs.dependencies import RELEASED
from reservation_core.domain.plan import WaitEstimate, Waiting
from reservation_core.domain.planning.calendar_planning import CalendarPicture
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.predictions.chained_starts import Likely, predict_chained
from reservation_core.domain.planning.predictions.queue_run import QueueRun, RunningRows
from reservation_core.domain.planning.predictions.run_time_shares import RunTimeShares
from reservation_core.domain.planning.predictions.wait_calibration import LEVELS, LearntWaits, WaitCalibration
from reservation_core.domain.planning.run_times import RunTime

_STARTS = 1000
"""How many starts, beside two for each job that is asked for, a run of the queue looks ahead.

Jobs beyond are predicted to start in their slots.
"""

_REMEMBERED = 20_000
"""Of how many waiting jobs the first prediction is remembered."""

_JUDGED = 1000
"""Over how many jobs that started the shares of right predictions are."""

_SECOND = 1_000_000


class Prediction(NamedTuple):
    """When a job will start: by `p50` in half of all cases, by `p90` in nine of ten."""

    p50: datetime
    p90: datetime


class Calibration(NamedTuple):
    """Of so many predicted starts lately, the shares that came by their first p50 and p90."""

    starts: int
    by_p50: float
    by_p90: float


@dataclass(slots=True)
class _First:
    """The first prediction for a job: its wait in seconds from `at` (microseconds), and the times of LEVELS, if any."""

    at: int
    wait: float
    times: Sequence[int] = ()
    missed: set[float] = field(default_factory=set)


class StartPredictor:
    """Learns from jobs that ended and started, and predicts starts. Its memory is bounded.

    Jobs that start as soon as they come are never predicted, and nothing is learnt from their waits. Times must not go
    back. `allowance` is what a waiting job's length has beyond the time that was asked for.
    """

    def __init__(self, allowance: timedelta = timedelta(0)) -> None:
        self._shares = RunTimeShares(allowance)
        self._running = RunningRows(self._shares)
        self._calibration = WaitCalibration()
        self._first: dict[str, _First] = {}
        self._due: list[tuple[int, str, float]] = []
        self._judged: deque[tuple[bool, ...]] = deque(maxlen=_JUDGED)

    def learn(self, ended: Iterable[RunTime]) -> None:
        """Learn how long jobs ran that ended, oldest first."""
        for run_time in ended:
            self._shares.learn(run_time)

    def note_start(self, job_id: str, now: datetime) -> None:
        """Compare a start with what was predicted first; done by `predict`, too, for what it finds started."""
        self._note_start(job_id, to_micros(now))

    def _note_start(self, job_id: str, at: int) -> None:
        first = self._first.pop(job_id, None)
        if first is None:
            return
        self._calibration.learn(first.wait, max(0, at - first.at) / _SECOND)
        if first.times:
            right = tuple(at <= time for time in first.times)
            for level, by_then in zip(LEVELS, right, strict=True):
                if level not in first.missed:
                    self._calibration.judge(level, right=by_then)
            self._judged.append(right)

    @property
    def learnt_waits(self) -> LearntWaits:
        """All that is learnt from waits; `calibrate` goes on with it."""
        return self._calibration.learnt

    def calibrate(self, learnt: LearntWaits) -> None:
        """Go on with what a predictor before has learnt from waits."""
        self._calibration = WaitCalibration(learnt)

    def calibration(self) -> Calibration | None:
        """How right the first predictions were of jobs that started lately; None while none has started."""
        starts = len(self._judged)
        if not starts:
            return None
        by_p50, by_p90 = (sum(rights) / starts for rights in zip(*self._judged, strict=True))
        return Calibration(starts, by_p50, by_p90)

    def predict(self, picture: CalendarPicture, estimates: Sequence[WaitEstimate], now: datetime) -> list[WaitEstimate]:
        """The same estimates, with p50 and p90 where these can be told; and others of jobs that wait for other jobs."""
        jobs = picture.common.queue.jobs
        found = self.predict_starts(picture.common, [jobs[e.id] for e in estimates if e.id in jobs], now)
        chained = self._chained(picture.common, found) if picture.common.dependants else []
        return chained + [
            replace(estimate, p50=found[estimate.id].p50, p90=found[estimate.id].p90)
            if estimate.id in found
            else estimate
            for estimate in estimates
        ]

    def _chained(self, picture: Picture, starts: Mapping[str, Prediction]) -> list[WaitEstimate]:
        return [
            WaitEstimate(job_id, None, RELEASED, to_moment(picture.ledger.slots[job_id][0]), *prediction)
            for job_id, prediction in self.predict_dependants(picture, starts).items()
        ]

    def predict_dependants(self, picture: Picture, starts: Mapping[str, Prediction]) -> Mapping[str, Prediction]:
        """Predictions for jobs that wait for others, from these for jobs in the queue."""
        if not len(self._shares):
            return {}
        likely = {job_id: Likely(to_micros(start.p50), to_micros(start.p90)) for job_id, start in starts.items()}
        found = predict_chained(picture, self._shares, likely, picture.at)
        return {job_id: _prediction(times) for job_id, times in found.items()}

    def predict_starts(self, picture: Picture, jobs: Iterable[Waiting], now: datetime) -> Mapping[str, Prediction]:
        """Predictions for these waiting jobs, as far as enough is known.

        None for those that a quota holds back. The first prediction for a job is remembered.
        """
        at = picture.catch_up(now)
        self._note_past(picture, at)
        known = [job for job in jobs if job.id in picture.queue.jobs]
        found = self._run(picture, known, 0, self._running, at)
        for job_id, first in found.items():
            self._remember(job_id, first)
        return {job_id: _prediction(first.times) for job_id, first in found.items() if first.times}

    def predict_once(self, picture: Picture, job: Waiting, beside: int, now: datetime) -> Prediction | None:
        """The prediction for a waiting job, as `predict_starts` makes it together with so many others.

        Nothing is remembered.
        """
        running = RunningRows(self._shares)
        first = self._run(picture, [job], beside, running, picture.catch_up(now)).get(job.id)
        return None if first is None or not first.times else _prediction(first.times)

    def _run(
        self, picture: Picture, jobs: Sequence[Waiting], beside: int, running: RunningRows, at: int
    ) -> Mapping[str, _First]:
        """The predictions for these jobs in the queue; `beside` counts as so many more of them."""
        jobs = [job for job in jobs if job.id not in picture.queue.held]
        if not (jobs and len(self._shares)):
            return {}
        run = QueueRun(picture, self._shares, running, at)
        starts = run.starts({job.id for job in jobs}, _STARTS + 2 * (len(jobs) + beside))
        found: dict[str, _First] = {}
        for job in jobs:
            slot = picture.ledger.slots.get(job.id)
            promised = None if slot is None else max(at, slot[0], picture.queue.promises.get(job.id, at))
            start = starts.get(job.id, None if slot is None else max(at, slot[0]))
            if start is not None:
                wait = (start - at) / _SECOND
                found[job.id] = _First(at, wait, self._times(wait, at, promised))
        return found

    def _times(self, wait: float, at: int, promised: int | None) -> Sequence[int]:
        """The times of LEVELS for a predicted wait; none where too little is known."""
        waits = self._calibration.waits(wait)
        if waits is None or (promised is None and None in waits):
            return ()
        times = [at + int(seconds * _SECOND) if seconds is not None else promised for seconds in waits]
        return [time if promised is None else min(time or promised, promised) for time in times if time is not None]

    def _remember(self, job_id: str, first: _First) -> None:
        known = self._first.get(job_id)
        if known is not None and (known.times or not first.times):
            return
        self._first[job_id] = first
        for level, time in zip(LEVELS, first.times, strict=False):
            heappush(self._due, (time, job_id, level))
        if len(self._first) > _REMEMBERED:
            del self._first[next(iter(self._first))]
        if len(self._due) > 4 * _REMEMBERED:
            self._due = [entry for entry in self._due if entry[1] in self._first]
            heapify(self._due)

    def _note_past(self, picture: Picture, at: int) -> None:
        """Note which jobs have started or gone, and of which jobs that still wait a predicted time is over."""
        ledger, queue = picture.ledger, picture.queue
        for job_id in [job_id for job_id in self._first if job_id not in queue.jobs]:
            rows = ledger.allocated(job_id)
            if rows:
                self._note_start(job_id, rows[0][1][0])
            else:
                del self._first[job_id]
        while self._due and self._due[0][0] < at:
            _, job_id, level = heappop(self._due)
            first = self._first.get(job_id)
            if first is not None and level not in first.missed:
                first.missed.add(level)
                self._calibration.judge(level, right=False)


def _prediction(times: Sequence[int]) -> Prediction:
    return Prediction(*map(to_moment, times))

"""Predicted starts of waiting jobs: what they are learnt from is read here, and the estimates that get them come by."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.plan import WaitEstimate
from reservation_core.domain.planning.calendar_planning import CalendarPicture
from reservation_core.domain.planning.predictions.wait_calibration import LearntWaits
from reservation_core.domain.planning.run_times import RunTime
from reservation_core.ports.transactions import DatabaseUnavailableError

_LASTS = timedelta(seconds=10)
"""After so long starts are predicted again, even if nothing has changed: jobs that still run make them later."""

_LOOK_EVERY = timedelta(seconds=5)
_NEWEST = 20_000


class PredictsStarts(Protocol):
    """Predicts starts from how long jobs really ran. Pure, and quick: it is asked between two plans."""

    @property
    def learnt_waits(self) -> LearntWaits:
        """All that is learnt from waits, to be kept for others."""

    def calibrate(self, learnt: LearntWaits) -> None:
        """Go on with what another has learnt from waits."""

    def learn(self, ended: Sequence[RunTime]) -> None:
        """Learn from jobs that ended since the last time, oldest first."""

    def predict(self, picture: CalendarPicture, estimates: Sequence[WaitEstimate], now: datetime) -> list[WaitEstimate]:
        """The same estimates with their p50 and p90 where these can be told, no later than the promised start.

        Others are added for jobs that wait for other jobs.
        """


class RunTimeReader:
    """Reads how long jobs ran that ended since it last looked, at first those of the newest that ever did."""

    def __init__(self) -> None:
        self._looked_at: datetime | None = None
        self._since: datetime | None = None

    def is_due(self, now: datetime) -> bool:
        """Whether it is time to look again."""
        return self._looked_at is None or abs(now - self._looked_at) >= _LOOK_EVERY

    async def read(self, uow: UnitOfWork, now: datetime) -> list[RunTime]:
        """The run times that were not read before, oldest first."""
        ended = await uow.planning.run_times(self._since, _NEWEST)
        self._looked_at = now
        if ended:
            self._since = min(now, ended[-1].ended_at)
        return ended


class StartPredictions:
    """A predictor, and what it has learnt. What it learns from waits is stored, for the next and for dry runs.

    `failed` is called with what the predictor fails with; estimates go without it, and it rests for a while.
    """

    def __init__(
        self, uow_factory: UnitOfWorkFactory, predictor: PredictsStarts, failed: Callable[[Exception], None]
    ) -> None:
        self._uow = uow_factory
        self._predictor = predictor
        self._failed = failed
        self._failed_at: datetime | None = None
        self._reader = RunTimeReader()
        self._predicted_at: datetime | None = None
        self._is_calibrated = False
        self._stored: LearntWaits | None = None

    def are_old(self, now: datetime) -> bool:
        """Whether it is time to predict again, though nothing may have changed."""
        return self._predicted_at is None or abs(now - self._predicted_at) >= _LASTS

    async def add(
        self, picture: CalendarPicture, estimates: Sequence[WaitEstimate], now: datetime, epoch: int
    ) -> list[WaitEstimate]:
        """Learn from what has ended lately, at first from the newest that ever did, and predict.

        When the predictor fails the estimates stay as they are. An old epoch stores nothing.
        """
        self._predicted_at = now
        if self._failed_at is not None and abs(now - self._failed_at) < _LASTS:
            return list(estimates)
        self._failed_at = None
        try:
            await self._learn(now)
            predicted = self._predictor.predict(picture, estimates, now)
            await self._store(epoch)
        except DatabaseUnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - places, reasons and promised starts are true without predictions
            self._failed_at = now
            self._failed(error)
            return list(estimates)
        return predicted

    async def _store(self, epoch: int) -> None:
        """Store what is learnt from waits, if there is more of it."""
        learnt = self._predictor.learnt_waits
        if learnt != self._stored:
            async with self._uow(one_statement=True) as uow:
                await uow.learnt_waits.store(epoch, learnt)
            self._stored = learnt

    async def _learn(self, now: datetime) -> None:
        if not self._is_calibrated:
            async with self._uow(one_statement=True) as uow:
                learnt = await uow.learnt_waits.read()
            self._is_calibrated = True
            if learnt is not None:
                self._predictor.calibrate(learnt)
            self._stored = self._predictor.learnt_waits
        if self._reader.is_due(now):
            async with self._uow(one_statement=True) as uow:
                ended = await self._reader.read(uow, now)
            if ended:
                self._predictor.learn(ended)

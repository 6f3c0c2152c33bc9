"""Predicted starts of waiting jobs: what they are learnt from is read here, and the estimates that get them come by."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.domain.plan import WaitEstimate
from reservation_core.domain.planning.calendar_planning import CalendarPicture
from reservation_core.domain.planning.run_times import RunTime

_LASTS = timedelta(seconds=10)
"""After so long starts are predicted again, even if nothing has changed: jobs that still run make them later."""

_LOOK_EVERY = timedelta(seconds=5)
_NEWEST = 20_000


class PredictsStarts(Protocol):
    """Predicts starts from how long jobs really ran. Pure, and quick: it is asked between two plans."""

    def learn(self, ended: Sequence[RunTime]) -> None:
        """Learn from jobs that ended since the last time, oldest first."""

    def predict(self, picture: CalendarPicture, estimates: Sequence[WaitEstimate], now: datetime) -> list[WaitEstimate]:
        """The same estimates with their p50 and p90 where these can be told, no later than the promised start."""


class StartPredictions:
    """A predictor, and how far into the history it has learnt."""

    def __init__(self, uow_factory: UnitOfWorkFactory, predictor: PredictsStarts) -> None:
        self._uow = uow_factory
        self._predictor = predictor
        self._predicted_at: datetime | None = None
        self._looked_at: datetime | None = None
        self._since: datetime | None = None

    def are_old(self, now: datetime) -> bool:
        """Whether it is time to predict again, though nothing may have changed."""
        return self._predicted_at is None or abs(now - self._predicted_at) >= _LASTS

    async def add(
        self, picture: CalendarPicture, estimates: Sequence[WaitEstimate], now: datetime
    ) -> list[WaitEstimate]:
        """Learn from what has ended lately, at first from the newest that ever did, and predict."""
        if self._looked_at is None or abs(now - self._looked_at) >= _LOOK_EVERY:
            async with self._uow(one_statement=True) as uow:
                ended = await uow.planning.run_times(self._since, _NEWEST)
            self._looked_at = now
            if ended:
                self._since = min(now, ended[-1].ended_at)
                self._predictor.learn(ended)
        self._predicted_at = now
        return self._predictor.predict(picture, estimates, now)

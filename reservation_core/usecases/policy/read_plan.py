"""Read what the planner would decide on, for a job that is not stored."""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.cards.placement_policies import PlacementPolicy
from reservation_core.domain.plan import PlanningSnapshot
from reservation_core.domain.planning.dry_runs import DryRun, PlanView, Predict
from reservation_core.domain.planning.predictions.start_predictor import Prediction, StartPredictor
from reservation_core.domain.planning.run_times import RunTime
from reservation_core.domain.planning.standings import orders_of
from reservation_core.domain.policy.fair_share import ranks
from reservation_core.domain.policy.limits import NO_POLICY, Policy
from reservation_core.domain.policy.quota_rulings import counts_hours, limits_starts
from reservation_core.domain.policy.quota_windows import week_start
from reservation_core.domain.policy.rules import Holding
from reservation_core.ports.clock import Clock
from reservation_core.usecases.planning.start_predictions import RunTimeReader

_log = structlog.get_logger(__name__)

_SLOTTED = 100
"""Of the jobs with a slot, the last so many are looked at as the planner does; the slots of the others count as taken.

To look at 10,000 costs a second and more, and changes something only while the planner is moving them.
"""
NEAREST = 10_000
"""So many GPUs of bookings are read at first, those that begin first: tens of thousands take a second."""
_OTHERS = 20_000
"""So many others with a slot are read for predictions, which run the whole queue forward."""
_DEPENDANTS = 200
"""So many jobs with a slot that wait for others are looked at: what each of them waits for is read, too."""
_UNPROMISED = 1000
"""So many jobs without a slot are looked at, even if they get none: some may start at once."""


@dataclass(frozen=True, slots=True)
class JobTerms:
    """The operators' terms of jobs: how long one may ask for at most, and how much longer each has its GPUs.

    How many get a slot, whether fair shares order them, the choice among nodes, the slack of promises, and of how many
    jobs starts are predicted are as the planner has them. `nearest`: of how many booked GPUs it is looked at, those
    that begin first; None for all.
    """

    longest: timedelta
    beside: timedelta
    promises: int
    fair_share: bool
    placement: PlacementPolicy
    slack: timedelta
    estimates: int
    nearest: int | None = NEAREST


async def read_plan(
    uow: UnitOfWork, policy: Policy, names: Mapping[int, str], terms: JobTerms, now: datetime, *, without: str | None
) -> PlanView:
    """The common queue and calendar. `names` are those of more users whom quotas may bind; `without` counts as gone."""
    unpromised = max(terms.promises, _UNPROMISED)
    found, slots, others, until = await uow.planning.undecided(
        terms.beside,
        unpromised=unpromised,
        slotted=_SLOTTED,
        dependants=_DEPENDANTS,
        others=_OTHERS if terms.estimates else 0,
        nearest=terms.nearest,
    )
    promises = max(0, terms.promises - slots)
    snapshot = _first_in_need(_leave_out(found, without), max(promises, _UNPROMISED))
    holdings: tuple[Holding, ...] = ()
    rules = NO_POLICY
    if limits_starts(policy):
        rules = policy
        owners = {job.owner for job in (*snapshot.waiting, *snapshot.dependants)} - names.keys()
        names = {**names, **await uow.policies.names(sorted(owners))}
        holdings = await uow.policies.held_by_all(now, promised=True)
        if counts_hours(policy):
            holdings += await uow.policies.spent_by_all(week_start(now), now)
        holdings = tuple(holding for holding in holdings if without is None or holding.reservation_id != without)
    shares = ranks(await uow.usage.shares()) if terms.fair_share else {}
    return PlanView(
        snapshot,
        rules,
        names,
        holdings,
        shares,
        promises,
        terms.placement,
        terms.slack,
        orders_of(policy),
        others,
        terms.estimates,
        until,
    )


async def read_booking_plan(uow: UnitOfWork, booking_id: str, terms: JobTerms, *, without: str | None) -> PlanView:
    """The GPUs of a booking and the jobs that wait in it, all of which get slots; no quota bounds them."""
    jobs = await uow.bookings.jobs_within([booking_id])
    snapshot = _leave_out(await uow.planning.within(booking_id, terms.beside, jobs), without)
    return PlanView(snapshot, NO_POLICY, {}, (), {}, len(jobs) + 1, terms.placement)


def _leave_out(snapshot: PlanningSnapshot, without: str | None) -> PlanningSnapshot:
    if without is None:
        return snapshot
    return replace(
        snapshot,
        commitments=tuple(row for row in snapshot.commitments if row.reservation_id != without),
        waiting=tuple(job for job in snapshot.waiting if job.id != without),
        dependants=tuple(job for job in snapshot.dependants if job.id != without),
    )


def _first_in_need(snapshot: PlanningSnapshot, limit: int) -> PlanningSnapshot:
    """The snapshot with so many jobs without a slot."""
    slots = {row.reservation_id for row in snapshot.commitments if row.planned}
    need = sorted((job for job in snapshot.waiting if job.id not in slots), key=lambda job: job.key)
    return replace(snapshot, waiting=(*(job for job in snapshot.waiting if job.id in slots), *need[:limit]))


class LikelyStarts:
    """What starts of jobs that are not submitted are predicted from, kept from one dry run to the next."""

    def __init__(self, terms: JobTerms, clock: Clock) -> None:
        self._clock = clock
        self._predictor = StartPredictor(terms.beside)
        self._reader = RunTimeReader()
        self._reading = asyncio.Lock()
        self._unlearnt: deque[Sequence[RunTime]] = deque()

    async def read(self, uow: UnitOfWork) -> Predict:
        """Read what is new; answers what predicts with it. Predict one start after the other: they share a memory."""
        async with self._reading:
            now = self._clock.now()  # a request that has waited would read again what ended meanwhile
            if self._reader.is_due(now):
                self._unlearnt.append(await self._reader.read(uow, now))
        waits = await uow.learnt_waits.read()

        def predict(run: DryRun) -> Prediction | None:
            try:
                while self._unlearnt:
                    self._predictor.learn(self._unlearnt.popleft())
                if waits is not None:
                    self._predictor.calibrate(waits)
                return run.predict(self._predictor)
            except Exception as error:  # noqa: BLE001 - the promise is true without a prediction
                _log.error("a start is not predicted", exc_info=error)
                return None

        return predict

"""Read what the planner would decide on, for a job that is not stored."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.cards.placement_policies import PlacementPolicy
from reservation_core.domain.plan import PlanningSnapshot
from reservation_core.domain.planning.dry_runs import PlanView
from reservation_core.domain.planning.standings import orders_of
from reservation_core.domain.policy.fair_share import ranks
from reservation_core.domain.policy.limits import NO_POLICY, Policy
from reservation_core.domain.policy.quota_rulings import counts_hours, limits_starts
from reservation_core.domain.policy.quota_windows import week_start
from reservation_core.domain.policy.rules import Holding

_SLOTTED = 100
"""Of the jobs with a slot, the last so many are looked at as the planner does; the slots of the others count as taken.

To look at 10,000 costs a second and more, and changes something only while the planner is moving them.
"""
_UNPROMISED = 1000
"""So many jobs without a slot are looked at, even if they get none: some may start at once."""


@dataclass(frozen=True, slots=True)
class JobTerms:
    """The operators' terms of jobs: how long one may ask for at most, and how much longer each has its GPUs.

    How many get a slot, whether fair shares order them, the choice among nodes, and the slack of promises are as the
    planner has them.
    """

    longest: timedelta
    beside: timedelta
    promises: int
    fair_share: bool
    placement: PlacementPolicy
    slack: timedelta


async def read_plan(
    uow: UnitOfWork, policy: Policy, names: Mapping[int, str], terms: JobTerms, now: datetime, *, without: str | None
) -> PlanView:
    """The common queue and calendar. `names` are those of more users whom quotas may bind; `without` counts as gone."""
    unpromised = max(terms.promises, _UNPROMISED)
    found, others = await uow.planning.undecided(terms.beside, unpromised=unpromised, slotted=_SLOTTED)
    promises = max(0, terms.promises - others)
    snapshot = _first_in_need(_leave_out(found, without), max(promises, _UNPROMISED))
    holdings: tuple[Holding, ...] = ()
    rules = NO_POLICY
    if limits_starts(policy):
        rules = policy
        owners = {job.owner for job in snapshot.waiting} - names.keys()
        names = {**names, **await uow.policies.names(sorted(owners))}
        holdings = await uow.policies.held_by_all(now, promised=True)
        if counts_hours(policy):
            holdings += await uow.policies.spent_by_all(week_start(now), now)
        holdings = tuple(holding for holding in holdings if without is None or holding.reservation_id != without)
    shares = ranks(await uow.usage.shares()) if terms.fair_share else {}
    return PlanView(snapshot, rules, names, holdings, shares, promises, terms.placement, terms.slack, orders_of(policy))


async def read_booking_plan(uow: UnitOfWork, booking_id: str, terms: JobTerms, *, without: str | None) -> PlanView:
    """The GPUs of a booking and the jobs that wait in it, all of which get slots; no quota bounds them."""
    jobs = await uow.bookings.jobs_within([booking_id])
    snapshot = _leave_out(await uow.planning.within(booking_id, terms.beside, jobs), without)
    return PlanView(snapshot, NO_POLICY, {}, (), {}, len(jobs) + 1, terms.placement)


def _leave_out(snapshot: PlanningSnapshot, without: str | None) -> PlanningSnapshot:
    if without is None:
        return snapshot
    rows = tuple(row for row in snapshot.commitments if row.reservation_id != without)
    return replace(snapshot, commitments=rows, waiting=tuple(job for job in snapshot.waiting if job.id != without))


def _first_in_need(snapshot: PlanningSnapshot, limit: int) -> PlanningSnapshot:
    """The snapshot with so many jobs without a slot."""
    slots = {row.reservation_id for row in snapshot.commitments if row.planned}
    need = sorted((job for job in snapshot.waiting if job.id not in slots), key=lambda job: job.key)
    return replace(snapshot, waiting=(*(job for job in snapshot.waiting if job.id in slots), *need[:limit]))

"""Past holders of GPUs: reports, one's own or for administrators everybody's; fair share, and sums."""

from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.policy.fair_share import ranks
from reservation_core.domain.policy.usage import SUMMED_AFTER, UsageBy, UsageReport, UsageSeries
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.jobs.visible_jobs import visible_user

_SUMMED_AT_ONCE = 20_000
_RESERVATIONS_AT_ONCE = 1_000
_HOURS_AT_ONCE = 50_000
"""Of cards. What one transaction sums is bounded by this as well: 64 cards booked for a month are as much."""


async def report(
    uow: UnitOfWork, principal: Principal, by: UsageBy, start: datetime, end: datetime, now: datetime
) -> UsageReport:
    """What the caller held in [start, end) and before now; for administrators what everybody held."""
    return await uow.usage.report(by, start, end, visible_user(principal), now)


async def series(
    uow: UnitOfWork,
    principal: Principal,
    by: UsageBy,
    start: datetime,
    end: datetime,
    step: timedelta,
    now: datetime,
) -> UsageSeries:
    """The same step by step."""
    return await uow.usage.series(by, start, end, step, visible_user(principal), now)


async def share_ranks(uow_factory: UnitOfWorkFactory, half_life: timedelta, now: datetime) -> dict[int, int]:
    """Bring everybody's decayed usage up to now; who goes first among equals (see `fair_share.ranks`)."""
    async with uow_factory() as uow:
        await uow.usage.bring_shares_up(half_life, now)
        return ranks(await uow.usage.shares())


async def sum_up_given_back(uow_factory: UnitOfWorkFactory) -> int:
    """Add what was given back a while ago to the sums by week that quotas on GPU-hours read; returns how many rows."""
    summed = 0
    while True:
        async with uow_factory() as uow:
            rows = await uow.usage.sum_up_given_back(await uow.now() - SUMMED_AFTER, _SUMMED_AT_ONCE)
        summed += rows
        if rows < _SUMMED_AT_ONCE:
            return summed


async def sum_up_usage(uow_factory: UnitOfWorkFactory) -> int:
    """Add reservations that were over a while ago to the sums that reports read; returns how many they were."""
    summed = 0
    while True:
        async with uow_factory() as uow:
            before = await uow.now() - SUMMED_AFTER
            found = await uow.usage.sum_up_usage(before, _RESERVATIONS_AT_ONCE, _HOURS_AT_ONCE)
        if not found:
            return summed
        summed += found

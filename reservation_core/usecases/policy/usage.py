"""Usage of GPUs: reports of the caller's usage, or for administrators of all users; fair shares; sums."""

from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.gpu_use.spans import Resolution, spans_of
from reservation_core.domain.policy.fair_share import ranks
from reservation_core.domain.policy.nouns import UsageBy
from reservation_core.domain.policy.usage import SUMMED_AFTER, UsageReport, UsageSeries, UsedGpus
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.jobs.visible_jobs import visible_user

_SUMMED_AT_ONCE = 20_000
_RESERVATIONS_AT_ONCE = 1_000
_HOURS_AT_ONCE = 50_000
"""GPU-hours that one transaction sums up at most (64 GPUs for a month), unless one reservation alone has more."""


async def report(
    uow: UnitOfWork, principal: Principal, by: UsageBy, start: datetime, end: datetime, now: datetime
) -> UsageReport:
    """The caller's usage in [start, end) before now, with its costs; for administrators that of all users."""
    policy = (await uow.policies.current()).policy
    return await uow.usage.report(by, start, end, visible_user(principal), now, policy)


async def used_gpus(
    uow: UnitOfWork, principal: Principal, by: UsageBy, start: datetime, end: datetime, now: datetime
) -> dict[str | None, UsedGpus]:
    """What samples say of the GPUs that the caller's jobs had; for administrators of all users' jobs."""
    spans = spans_of(start, min(end, now), Resolution.HOURS.step, await uow.gpu_use.rolled())
    return await uow.gpu_use.used(by, visible_user(principal), spans)


async def series(
    uow: UnitOfWork, principal: Principal, by: UsageBy, start: datetime, end: datetime, step: timedelta, now: datetime
) -> UsageSeries:
    """The same in steps."""
    return await uow.usage.series(by, start, end, step, visible_user(principal), now)


async def used_by_step(
    uow: UnitOfWork, principal: Principal, by: UsageBy, start: datetime, end: datetime, step: timedelta
) -> dict[tuple[str | None, int], UsedGpus]:
    """What samples say of the GPUs in these steps, as far as hours are summed up."""
    return await uow.gpu_use.used_by_step(by, visible_user(principal), start, end, step)


async def share_ranks(uow_factory: UnitOfWorkFactory, half_life: timedelta, now: datetime) -> dict[int, int]:
    """Update the decayed usage of all users, and return their ranks (see `fair_share.ranks`)."""
    async with uow_factory() as uow:
        await uow.usage.update_shares(half_life, now)
        return ranks(await uow.usage.shares())


async def sum_up_given_back(uow_factory: UnitOfWorkFactory) -> int:
    """Add old ended holdings to the weekly sums for quotas on GPU-hours; returns their number."""
    summed = 0
    while True:
        async with uow_factory() as uow:
            rows = await uow.usage.sum_up_given_back(await uow.now() - SUMMED_AFTER, _SUMMED_AT_ONCE)
        summed += rows
        if rows < _SUMMED_AT_ONCE:
            return summed


async def sum_up_usage(uow_factory: UnitOfWorkFactory) -> int:
    """Add old ended reservations to the sums for reports; returns their number."""
    summed = 0
    while True:
        async with uow_factory() as uow:
            before = await uow.now() - SUMMED_AFTER
            count = await uow.usage.sum_up_usage(before, _RESERVATIONS_AT_ONCE, _HOURS_AT_ONCE)
        if not count:
            return summed
        summed += count

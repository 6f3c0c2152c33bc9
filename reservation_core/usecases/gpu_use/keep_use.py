"""Keep what was sampled: days of partitions made and dropped, and samples rolled up, in bounded steps."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import structlog

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.calendar import step_begin
from reservation_core.domain.gpu_use.gpu_errors import ERRORS_KEPT
from reservation_core.domain.gpu_use.samples import SAMPLES_KEPT
from reservation_core.domain.gpu_use.spans import Resolution

_log = structlog.get_logger(__name__)

STEPS = 100
"""The most transactions of a run; the next run goes on."""
_AT_ONCE = timedelta(minutes=10)
"""Of which samples one transaction rolls up at most."""
_LATE = timedelta(seconds=30)
"""How long the end of a minute is waited for."""
_LASTS_AT_MOST = timedelta(minutes=10)
"""A statement on a whole day: to compress one of 3,000 GPUs (4 million rows) took half a minute on a busy machine."""


async def keep_use(uow_factory: UnitOfWorkFactory) -> None:
    """Make and drop partitions, compress those that are over where that is known, and roll up what is complete.

    Raises LockTimeoutError where a long read keeps a partition from being dropped; samples are rolled up all the same.
    """
    async with uow_factory() as uow:
        await uow.retention.make_gpu_use_partitions()
        now = await uow.now()
        await uow.gpu_health.forget(now - ERRORS_KEPT, now - SAMPLES_KEPT)
    patient = uow_factory.bounded(connection=_LASTS_AT_MOST, statement=_LASTS_AT_MOST)
    async with patient() as uow:
        await _forget_to_come(uow)
    for _ in range(STEPS):
        async with uow_factory() as uow:
            if not await _roll_up(uow):
                break
    else:
        return  # what is not rolled up yet must not be dropped
    for _ in range(STEPS):
        async with patient() as uow:
            if not await uow.retention.drop_gpu_use_partition(_LASTS_AT_MOST):
                break


async def _forget_to_come(uow: UnitOfWork) -> None:
    """Where the clock went back, remove what was sampled in times that come again: it would hide what GPUs do then.

    Not where it went back by more than samples are kept: such a clock may be wrong itself, and hours are kept for long.
    """
    rolled = await uow.gpu_use.lock()
    now = await uow.now()
    ahead = rolled[Resolution.MINUTES] - now
    if ahead > SAMPLES_KEPT:
        _log.warning(
            "gpu_use_not_stored", because="the clock went back by more than a day", ahead_s=ahead.total_seconds()
        )
    elif ahead > timedelta():
        back = {resolution: min(until, step_begin(now, resolution.step)) for resolution, until in rolled.items()}
        await uow.gpu_use.forget_to_come(now, back)


async def _roll_up(uow: UnitOfWork) -> bool:
    """Roll up some minutes, and an hour if it is complete; false when there is nothing to do."""
    rolled = await uow.gpu_use.lock()
    now = await uow.now()
    start = await _begin(uow, Resolution.MINUTES, rolled, now, step_begin(now - _LATE, Resolution.MINUTES.step))
    until = min(step_begin(now - _LATE, Resolution.MINUTES.step), start + _AT_ONCE)
    if until > start:
        await uow.gpu_use.roll_up(Resolution.MINUTES, start, until)
    minutes = max(start, until)
    hours = await _begin(uow, Resolution.HOURS, rolled, now, step_begin(minutes, Resolution.HOURS.step))
    if hours + Resolution.HOURS.step <= minutes:
        await uow.gpu_use.roll_up(Resolution.HOURS, hours, hours + Resolution.HOURS.step)
        await uow.gpu_use.sum_up(hours)
        hours += Resolution.HOURS.step
    moved = {Resolution.MINUTES: minutes, Resolution.HOURS: hours}
    if moved == rolled:
        return False
    await uow.gpu_use.move(moved)
    return True


async def _begin(
    uow: UnitOfWork, resolution: Resolution, rolled: Mapping[Resolution, datetime], now: datetime, until: datetime
) -> datetime:
    """Where to go on: where the last step ended; after days off at the oldest that is there, or at `until`."""
    mark = rolled[resolution]
    if mark >= now - 2 * SAMPLES_KEPT:
        return mark
    oldest = await uow.gpu_use.oldest(resolution, mark)
    return until if oldest is None else min(until, step_begin(oldest, resolution.step))

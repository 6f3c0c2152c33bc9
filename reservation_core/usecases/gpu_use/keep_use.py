"""Keep what was sampled: days of partitions made and dropped, and samples rolled up, in bounded steps."""

from datetime import timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.gpu_use.roll_ups import step_begin
from reservation_core.domain.gpu_use.samples import SAMPLES_KEPT
from reservation_core.domain.gpu_use.spans import Resolution

STEPS = 100
"""The most transactions of a run; the next run goes on."""
_AT_ONCE = timedelta(minutes=10)
"""Of which samples one transaction rolls up at most."""
_LATE = timedelta(seconds=30)
"""How long the end of a minute is waited for."""


async def keep_use(uow_factory: UnitOfWorkFactory) -> None:
    """Make and drop partitions, and roll up what is complete.

    Raises LockTimeoutError where a long read keeps a partition from being dropped; samples are rolled up all the same.
    """
    async with uow_factory() as uow:
        await uow.retention.make_gpu_use_partitions()
    for _ in range(STEPS):
        async with uow_factory() as uow:
            if not await _roll_up(uow):
                break
    for _ in range(STEPS):
        async with uow_factory() as uow:
            if not await uow.retention.drop_gpu_use_partition():
                break


async def _roll_up(uow: UnitOfWork) -> bool:
    """Roll up some minutes, and an hour if it is complete; false when there is nothing to do."""
    rolled = await uow.gpu_use.lock()
    now = await uow.now()
    minutes, hours = rolled[Resolution.MINUTES], rolled[Resolution.HOURS]
    # Of what is older there are no samples any more.
    start = max(minutes, step_begin(now - 2 * SAMPLES_KEPT, Resolution.HOURS.step))
    until = min(step_begin(now - _LATE, Resolution.MINUTES.step), start + _AT_ONCE)
    if until > start:
        await uow.gpu_use.roll_up(Resolution.MINUTES, start, until)
        minutes = until
    hour = max(hours, step_begin(now - 2 * SAMPLES_KEPT, Resolution.HOURS.step))
    if hour + Resolution.HOURS.step <= minutes:
        await uow.gpu_use.roll_up(Resolution.HOURS, hour, hour + Resolution.HOURS.step)
        hours = hour + Resolution.HOURS.step
    if (minutes, hours) == (rolled[Resolution.MINUTES], rolled[Resolution.HOURS]):
        return False
    await uow.gpu_use.move({Resolution.MINUTES: minutes, Resolution.HOURS: hours})
    return True

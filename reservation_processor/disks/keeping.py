"""The leader's look at disks: made, resized and removed in the cluster, and taken from jobs that have ended."""

import asyncio
from datetime import timedelta
from typing import Final

from reservation_core.ports.disks.disks import DiskStore
from reservation_core.ports.wakeups import Channel
from reservation_core.runtime.settings.components import ProcessorSettings
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.disks.settle_disks import DiskRules, measure_disks, settle_disks

REST_S: Final = 1.0
"""Between two looks: each event of the audit log wakes this, and few are of disks."""
MEASURE_EVERY_S: Final = 10.0


async def keep_disks(runtime: Runtime, settings: ProcessorSettings) -> None:
    """Settle disks whenever something has happened, and measure them from time to time, until cancelled."""
    if runtime.disk_store is None:
        return
    rules = DiskRules(settings.disks.kept)
    async with asyncio.TaskGroup() as group:
        group.create_task(_keep_settling(runtime, settings, runtime.disk_store, rules), name="disks")
        group.create_task(_keep_measuring(runtime, runtime.disk_store, rules), name="use of disks")


async def _keep_settling(runtime: Runtime, settings: ProcessorSettings, store: DiskStore, rules: DiskRules) -> None:
    sweep = timedelta(seconds=settings.sweep_s)
    loop = runtime.loops["disks"]
    async with runtime.wakeups.subscribe(Channel.EVENTS) as subscription:

        async def once() -> None:
            settled = await settle_disks(runtime.uow, store, runtime.clock, rules)
            loop.note_success()
            if not settled:
                await subscription.wait(sweep)
                await asyncio.sleep(REST_S)

        await loop.repeat(once)


async def _keep_measuring(runtime: Runtime, store: DiskStore, rules: DiskRules) -> None:
    loop = runtime.loops["disk_use"]
    await loop.repeat(lambda: measure_disks(runtime.uow, store, runtime.clock, rules), rest_s=MEASURE_EVERY_S)

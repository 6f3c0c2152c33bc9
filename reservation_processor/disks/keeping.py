"""The leader's look at disks: made, copied, resized and removed in the cluster, and taken from jobs that have ended."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

from reservation_core.ports.disks.disks import DiskStore
from reservation_core.ports.wakeups import Channel
from reservation_core.runtime.settings.components import ProcessorSettings
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.disks.copy_disks import Copying
from reservation_core.usecases.disks.settle_disks import DiskRules, measure_disks, settle_disks

REST_S: Final = 1.0
"""Between two looks: each event of the audit log wakes this, and few are of disks."""
MEASURE_EVERY_S: Final = 10.0


async def keep_disks(runtime: Runtime, settings: ProcessorSettings) -> None:
    """Settle and copy disks whenever something has happened, and measure them from time to time, until cancelled."""
    if runtime.disk_store is None:
        return
    store, rules, copying = runtime.disk_store, DiskRules(settings.disks.kept), Copying()

    async def settle() -> bool:
        return await settle_disks(runtime.uow, store, runtime.clock, rules, copying.targets) > 0

    async def copy() -> bool:
        return await copying.copy_next(runtime.uow, store, runtime.clock, rules)

    async with asyncio.TaskGroup() as group:
        group.create_task(_keep_doing(runtime, settings, "disks", settle), name="disks")
        group.create_task(_keep_doing(runtime, settings, "disk_copies", copy), name="copies of disks")
        group.create_task(_keep_measuring(runtime, store, rules), name="use of disks")


async def _keep_doing(
    runtime: Runtime, settings: ProcessorSettings, name: str, step: Callable[[], Awaitable[bool]]
) -> None:
    sweep = timedelta(seconds=settings.sweep_s)
    loop = runtime.loops[name]
    async with runtime.wakeups.subscribe(Channel.EVENTS) as subscription:

        async def once() -> None:
            has_done = await step()
            loop.note_success()
            if not has_done:
                await subscription.wait(sweep)
                await asyncio.sleep(REST_S)

        await loop.repeat(once)


async def _keep_measuring(runtime: Runtime, store: DiskStore, rules: DiskRules) -> None:
    loop = runtime.loops["disk_use"]
    await loop.repeat(lambda: measure_disks(runtime.uow, store, runtime.clock, rules), rest_s=MEASURE_EVERY_S)

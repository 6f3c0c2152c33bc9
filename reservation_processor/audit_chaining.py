"""The leader chains the audit log as it grows."""

import asyncio

from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.history.audit_chain import BATCH, chain_events

LOOK_EVERY_S = 0.5


async def keep_chaining(runtime: Runtime) -> None:
    """Chain what is recorded twice a second until cancelled; full batches take no more than half of the time."""
    clock = asyncio.get_running_loop().time

    async def once() -> None:
        begun = clock()
        chained = await chain_events(runtime.uow)
        await asyncio.sleep(LOOK_EVERY_S if chained < BATCH else clock() - begun)

    await runtime.loops["audit_chain"].repeat(once)

"""Wake-ups: after the commit, in every process, for what a change is about."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from reservation_core.adapters.postgres.connection.engine import open_engine
from reservation_core.adapters.postgres.connection.queues import open_client
from reservation_core.adapters.postgres.connection.wakeups import PostgresWakeups
from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.ports.wakeups import Channel
from tests.waiting import PATIENCE_S, eventually

LONG = timedelta(seconds=PATIENCE_S)
SHORT = timedelta(milliseconds=50)


@asynccontextmanager
async def running(wakeups: PostgresWakeups) -> AsyncIterator[None]:
    """A process's wake-ups, from when they listen."""
    task = asyncio.create_task(wakeups.run())
    try:
        async with wakeups.subscribe(Channel.EVENTS) as heard:
            assert await heard.wait(LONG)  # whoever begins to listen looks once
            await eventually(lambda: wakeups._backend_pid > 0)
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_another_process_is_woken_by_what_was_committed_and_by_nothing_else(database_url: str) -> None:
    one, other = (PostgresWakeups(database_url, name) for name in ("one", "other"))
    engine = open_engine(database_url, pool=2, application="test")
    try:
        uow_factory = UnitOfWorkFactory(engine, await open_client(engine), one)
        async with running(one), running(other), other.subscribe(Channel.GPU_JOBS) as there:
            with suppress(ZeroDivisionError):
                async with uow_factory() as uow:
                    uow.wake(Channel.GPU_JOBS)
                    raise ZeroDivisionError
            assert not await there.wait(SHORT)
            async with uow_factory() as uow:
                uow.wake(Channel.GPU_JOBS)
                assert not await there.wait(SHORT)
            assert await there.wait(LONG)
    finally:
        await engine.dispose()

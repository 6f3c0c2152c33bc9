"""Pod locks: held without a transaction, by one connection, until they are given back or it ends."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from reservation_core.adapters.postgres.connection.engine import open_engine
from reservation_core.adapters.postgres.connection.queues import open_client
from reservation_core.adapters.postgres.connection.wakeups import PostgresWakeups
from reservation_core.adapters.postgres.unit_of_work import HeldPods, UnitOfWorkFactory
from reservation_core.ports.transactions import DatabaseUnavailableError
from tests.database.sql import sql
from tests.waiting import PATIENCE_S, eventually

_STATES = (
    "SELECT state FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
    "AND backend_type = 'client backend'"
)
_END_ALL = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid = :pid"
_LOCKS = "SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory' AND granted"


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[AsyncEngine]:
    engine = open_engine(database_url, pool=3, application="test")
    try:
        yield engine
    finally:
        await engine.dispose()


@pytest.fixture
async def beside(database_url: str) -> AsyncIterator[AsyncEngine]:
    """For looking from outside."""
    engine = open_engine(database_url, pool=1, application="test")
    try:
        yield engine
    finally:
        await engine.dispose()


@pytest.fixture
async def uow(engine: AsyncEngine, database_url: str) -> UnitOfWorkFactory:
    return UnitOfWorkFactory(engine, await open_client(engine), PostgresWakeups(database_url, "test"))


async def asked(engine: AsyncEngine, sql: str, **parameters: object) -> list[object]:
    async with engine.begin() as connection:
        return list((await connection.execute(text(sql), parameters)).scalars())


async def some_work(held: HeldPods) -> None:
    async with held.work() as work:
        await work.events.of_reservation("job-a", 0, 1)


async def failing(held: HeldPods) -> None:
    async with held.work() as work:
        await work.events.of_reservation("job-a", 0, 1)
        raise ZeroDivisionError


async def test_who_comes_second_gets_what_is_free(uow: UnitOfWorkFactory) -> None:
    async with uow.hold_pods(["job-a", "job-b"]) as first:
        assert first.ids == {"job-a", "job-b"}
        async with uow.hold_pods(["job-b", "job-c"]) as second:
            assert second.ids == {"job-c"}
    async with uow.hold_pods(["job-a", "job-b", "job-c"]) as third:
        assert third.ids == {"job-a", "job-b", "job-c"}


async def test_no_transaction_is_open_while_they_are_held(uow: UnitOfWorkFactory, beside: AsyncEngine) -> None:
    async with uow.hold_pods(["job-a"]) as held:
        assert set(await asked(beside, _STATES)) == {"idle"}
        async with held.work() as work:
            await work.events.of_reservation("job-a", 0, 1)
            assert "idle in transaction" in await asked(beside, _STATES)
        async with held.work(one_statement=True) as work:
            await work.events.of_reservation("job-a", 0, 1)
            assert set(await asked(beside, _STATES)) == {"idle"}
        assert len(await asked(beside, _LOCKS)) == 1
    assert await asked(beside, _LOCKS) == []


async def test_a_transaction_that_fails_leaves_the_locks_held(uow: UnitOfWorkFactory) -> None:
    async with uow.hold_pods(["job-a"]) as held:
        with pytest.raises(ZeroDivisionError):
            await failing(held)
        async with uow.hold_pods(["job-a"]) as second:
            assert second.ids == frozenset()
        async with held.work() as work:
            await work.events.of_reservation("job-a", 0, 1)


@pytest.mark.parametrize("pause", ["", "work"])
async def test_one_that_is_asked_for_alone_is_waited_for(uow: UnitOfWorkFactory, pause: str) -> None:
    patience = timedelta(milliseconds=50)
    async with uow.hold_pods(["job-a"]) as first:
        async with uow.hold_pods(["job-a"], patience=patience) as second:
            assert second.ids == frozenset()
        if pause:
            async with first.work() as work:
                await work.events.of_reservation("job-a", 0, 1)
    async with uow.hold_pods(["job-a"], patience=patience) as third:
        assert third.ids == {"job-a"}


async def test_what_is_done_with_an_error_is_given_back_too(uow: UnitOfWorkFactory, beside: AsyncEngine) -> None:
    with pytest.raises(TimeoutError):  # of the cluster's, say: it says nothing about the database
        async with uow.hold_pods(["job-a"]):
            raise TimeoutError
    assert await asked(beside, _LOCKS) == []


async def test_who_lost_the_connection_can_write_no_more_and_is_told(
    uow: UnitOfWorkFactory, beside: AsyncEngine
) -> None:
    refused: list[str] = []

    async def lose_it() -> None:
        async with uow.hold_pods(["job-a"]) as held:
            [pid] = await asked(beside, _LOCKS)
            await asked(beside, _END_ALL, pid=pid)
            for _ in range(2):
                try:
                    await some_work(held)
                except DatabaseUnavailableError as error:
                    refused.append(str(error))

    with pytest.raises(DatabaseUnavailableError):
        await lose_it()
    assert len(refused) == 2, "another connection would have no locks"
    await eventually(lambda: no_locks(beside))  # its client may hear of the end before the server is done with it
    async with uow.hold_pods(["job-a"]) as again:
        assert again.ids == {"job-a"}


async def test_a_cancellation_is_not_hidden_by_what_it_did_to_the_connection(
    uow: UnitOfWorkFactory, beside: AsyncEngine
) -> None:
    """A caller notified of a database that is away tries again, and would never end."""
    waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"

    async def work() -> None:
        async with uow.hold_pods(["job-a"]) as held, held.work() as work:
            await sql(work, "SELECT pg_sleep(60)")  # a statement that lasts

    task = asyncio.create_task(work())
    await eventually(lambda: asked(beside, waiting))
    task.cancel()
    await asyncio.wait([task], timeout=PATIENCE_S)
    assert task.cancelled()
    await eventually(lambda: no_locks(beside))


async def no_locks(engine: AsyncEngine) -> bool:
    return await asked(engine, _LOCKS) == []

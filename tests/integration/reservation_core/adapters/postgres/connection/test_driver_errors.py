"""Which SQLSTATEs of a real server count as trouble that passes, on each way to it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import asyncpg
import pytest
from pgmq.sqlalchemy_async_queue import PGMQueue
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from reservation_core.adapters.postgres.connection.driver_errors import map_to_unavailable
from reservation_core.adapters.postgres.connection.engine import open_connection, open_engine
from reservation_core.adapters.postgres.connection.wakeups import PostgresWakeups
from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.ports.transactions import DatabaseUnavailableError, StatementRefusedError, TransactionLostError
from tests.database.postgres_fault_proxy import fault_proxy
from tests.database.sql import connection_of
from tests.integration.reservation_core.adapters.postgres.conftest import Seed
from tests.waiting import eventually

AWAY = ["08000", "08003", "08006", "08P01", "25P03", "25P04", "53300", "57P01", "57P02", "57P03", "57P04", "57P05"]
REFUSED = [
    "25006", "40003", "53000", "53100", "53200", "53400", "55000", "55006", "55P03", "57000", "57014",
    "58000", "58030", "58P01", "XX000", "XX001", "XX002",
]  # fmt: skip
LOST = ["40000", "40001", "40002", "40P01"]
SAYS_NOTHING_OF_THE_DATABASE = ["22000", "22003", "23505", "25P02", "42601", "42P01", "42501", "54000", "P0001"]


@pytest.fixture
async def units(database_url: str, engine: AsyncEngine) -> UnitOfWorkFactory:
    """Units of work on a fresh database."""
    return UnitOfWorkFactory(engine, cast("PGMQueue", None), PostgresWakeups(database_url, "test"))


@pytest.fixture
async def driver(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection of the driver's, without SQLAlchemy."""
    connection = await open_connection(database_url, "test")
    yield connection
    connection.terminate()


def raising(sqlstate: str) -> str:
    """A statement that the server answers with this error."""
    return f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{sqlstate}', MESSAGE = 'injected'; END $$"


def expected(sqlstate: str) -> type[Exception]:
    """What a caller is to see."""
    if sqlstate in AWAY:
        return DatabaseUnavailableError
    if sqlstate in REFUSED:
        return StatementRefusedError
    return TransactionLostError if sqlstate in LOST else Exception


@pytest.mark.parametrize("sqlstate", AWAY + REFUSED + LOST + SAYS_NOTHING_OF_THE_DATABASE)
async def test_what_passes_is_told_from_what_does_not(
    units: UnitOfWorkFactory, driver: asyncpg.Connection, sqlstate: str
) -> None:
    """In a transaction, without one, and past SQLAlchemy."""

    async def past_sqlalchemy() -> None:
        with map_to_unavailable() as reached:
            reached.connected = True
            await driver.execute(raising(sqlstate))

    raised: list[Exception] = []
    for one_statement in (False, True):
        with pytest.raises(expected(sqlstate)) as caught:
            async with units(one_statement=one_statement) as uow:
                await connection_of(uow).execute(text(raising(sqlstate)))
        raised.append(caught.value)
    with pytest.raises(expected(sqlstate)) as caught:
        await past_sqlalchemy()
    raised.append(caught.value)
    if sqlstate in SAYS_NOTHING_OF_THE_DATABASE:
        assert not [error for error in raised if isinstance(error, DatabaseUnavailableError)]
    else:
        assert {type(error) for error in raised} == {expected(sqlstate)}
    if sqlstate in AWAY + REFUSED:
        assert all(sqlstate in str(error) for error in raised)
    async with units() as uow:
        assert await uow.now()


async def test_a_read_only_database_will_pass(database_url: str, seed: Seed) -> None:
    """What managed servers do when their disk is full."""
    name = await seed.rows("SELECT current_database() AS name")
    await seed.run(f'ALTER DATABASE "{name[0]["name"]}" SET default_transaction_read_only = on')
    engine = open_engine(database_url, pool=1, application="test")
    units = UnitOfWorkFactory(engine, cast("PGMQueue", None), PostgresWakeups(database_url, "test"))
    try:
        with pytest.raises(StatementRefusedError, match="SQLSTATE 25006"):
            async with units() as uow:
                await connection_of(uow).execute(text("UPDATE planner_lease SET holder = 'me'"))
    finally:
        await engine.dispose()


async def test_a_cancelled_and_a_slow_statement_will_pass(units: UnitOfWorkFactory, seed: Seed) -> None:
    async def cancelled() -> bool:
        """A cancel is lost between the statement's preparation and its execution."""
        await seed.run(
            "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity "
            "WHERE datname = current_database() AND query = 'SELECT pg_sleep(600)' AND state = 'active'"
        )
        return sleeping.done()

    async def sleep(limit: str) -> None:
        async with units() as uow:
            await connection_of(uow).execute(text(f"SET LOCAL statement_timeout = '{limit}'"))
            await connection_of(uow).execute(text("SELECT pg_sleep(600)"))

    sleeping = asyncio.create_task(sleep("0"))
    await eventually(cancelled)
    with pytest.raises(StatementRefusedError, match="SQLSTATE 57014"):
        await sleeping
    with pytest.raises(StatementRefusedError, match="SQLSTATE 57014"):
        await sleep("10ms")


async def test_a_transaction_that_idled_too_long_will_pass(units: UnitOfWorkFactory, seed: Seed) -> None:
    async def idle() -> None:
        async with units() as uow:
            connection = connection_of(uow)
            pid = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one()
            await connection.execute(text("SET idle_in_transaction_session_timeout = '10ms'"))

            async def ended() -> bool:
                return not await seed.rows("SELECT 1 FROM pg_stat_activity WHERE pid = :pid", pid=pid)

            await eventually(ended)
            await uow.now()

    with pytest.raises(DatabaseUnavailableError):
        await idle()


@pytest.mark.parametrize("one_statement", [False, True])
async def test_a_schema_that_was_changed_under_a_prepared_statement_will_pass(
    units: UnitOfWorkFactory, seed: Seed, one_statement: bool
) -> None:
    """An upgrade changes tables while processes of before it run: each connection sees this once."""
    query = text("SELECT * FROM planner_lease")
    async with units(one_statement=one_statement) as uow:
        await connection_of(uow).execute(query)
    await seed.run("ALTER TABLE planner_lease ADD COLUMN note text")
    with pytest.raises(TransactionLostError) as caught:
        async with units(one_statement=one_statement) as uow:
            await connection_of(uow).execute(query)
    assert isinstance(caught.value.__cause__, DBAPIError)
    async with units(one_statement=one_statement) as uow:
        await connection_of(uow).execute(query)


@pytest.mark.parametrize("sqlstate", ["57014", "53200", "XX000", "25006"])
async def test_a_connection_whose_begin_failed_is_not_handed_to_the_next(database_url: str, sqlstate: str) -> None:
    async with fault_proxy(database_url) as proxy:
        engine = open_engine(proxy.url, pool=1, application="test")
        units = UnitOfWorkFactory(engine, cast("PGMQueue", None), PostgresWakeups(database_url, "test"))
        try:
            async with units() as uow:
                await uow.now()
            proxy.answer(sqlstate)
            with pytest.raises(DatabaseUnavailableError):
                async with units() as uow:
                    await uow.now()
            proxy.heal()
            async with units() as uow:
                assert await uow.now()
        finally:
            await engine.dispose()


@pytest.mark.parametrize("next_by_itself", [False, True])
@pytest.mark.parametrize("which", ["BEGIN", "COMMIT", "ROLLBACK"])
async def test_a_connection_on_which_a_transaction_stayed_is_not_handed_to_the_next(
    database_url: str, which: str, next_by_itself: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was cancelled before its work was done, or after that of BEGIN, leaves a transaction that has failed."""
    engine = open_engine(database_url, pool=1, application="test")
    units = UnitOfWorkFactory(engine, cast("PGMQueue", None), PostgresWakeups(database_url, "test"))
    cancelled_there = f"BEGIN; {raising('57014')}" if which == "BEGIN" else raising("57014")
    execute = asyncpg.Connection.execute

    async def cut(self: asyncpg.Connection, query: str, *args: Any, timeout: float | None = None) -> Any:
        return await execute(self, cancelled_there if query.startswith(which) else query, *args, timeout=timeout)

    async def use(end: type[Exception] | None) -> None:
        async with units() as uow:
            await uow.now()
            if end is not None:
                raise end

    try:
        await use(None)
        with monkeypatch.context() as patched:
            patched.setattr(asyncpg.Connection, "execute", cut)
            with pytest.raises((DatabaseUnavailableError, LookupError)):
                await use(LookupError if which == "ROLLBACK" else None)
        async with units(one_statement=next_by_itself) as uow:
            assert await uow.now()
    finally:
        await engine.dispose()

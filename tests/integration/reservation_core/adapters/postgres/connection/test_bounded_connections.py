"""No wait for the server is without a bound, and no dead connection is handed out."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import asyncpg
import pytest
from pgmq.sqlalchemy_async_queue import PGMQueue
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from reservation_core.adapters.postgres.connection import bounded_connections, migrating
from reservation_core.adapters.postgres.connection.bounded_connections import SILENT_S, BoundedConnection
from reservation_core.adapters.postgres.connection.driver_errors import map_to_unavailable
from reservation_core.adapters.postgres.connection.engine import open_connection, open_engine
from reservation_core.adapters.postgres.connection.wakeups import PostgresWakeups
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.settings.components import ApiSettings
from tests.database.postgres_proxy import PostgresProxy
from tests.database.sql import sql
from tests.waiting import PATIENCE_S, eventually

SOON = timedelta(seconds=0.2)
LATE = timedelta(seconds=PATIENCE_S)


@pytest.fixture
def proxy(database_url: str) -> Iterator[PostgresProxy]:
    with PostgresProxy(database_url) as running:
        yield running


@pytest.fixture
async def engine(proxy: PostgresProxy) -> AsyncIterator[AsyncEngine]:
    """Two connections through the proxy."""
    opened = open_engine(proxy.url, pool=2, application="test")
    yield opened
    async with asyncio.timeout(PATIENCE_S):
        await opened.dispose()


@pytest.fixture
def units(engine: AsyncEngine, proxy: PostgresProxy) -> UnitOfWorkFactory:
    return UnitOfWorkFactory(engine, cast("PGMQueue", None), PostgresWakeups(proxy.url, "test"))


async def driver_of(connection: AsyncConnection) -> BoundedConnection:
    return cast("BoundedConnection", (await connection.get_raw_connection()).driver_connection)


async def run(uow: UnitOfWork, statement: str) -> Any:
    return (await sql(uow, statement)).scalar()


PID = "SELECT pg_backend_pid()"


def assert_probed(driver: asyncpg.Connection) -> None:
    opened = driver._transport.get_extra_info("socket")
    assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    idle, interval, count = (
        opened.getsockopt(socket.IPPROTO_TCP, option)
        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    )
    assert idle + interval * count <= SILENT_S
    assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == SILENT_S * 1000


async def test_a_peer_that_is_gone_is_found_by_the_system_on_every_kind_of_connection(
    engine: AsyncEngine, proxy: PostgresProxy
) -> None:
    async with engine.connect() as connection:
        assert_probed(await driver_of(connection))
    async with migrating._engine(proxy.url) as migrating_engine, migrating_engine.connect() as connection:
        assert_probed(await driver_of(connection))
    single = await open_connection(proxy.url, "test")
    assert_probed(single)
    single.terminate()


async def test_the_server_bounds_each_statement_as_well(engine: AsyncEngine) -> None:
    async with engine.connect() as connection:
        assert (await connection.execute(text("SHOW statement_timeout"))).scalar_one() == "75s"


def test_a_request_on_a_dead_connection_is_answered_within_five_seconds() -> None:
    patience = ApiSettings().database_patience_s
    assert patience + bounded_connections._CANCEL_S < 5
    assert max(bounded_connections.PROVE_S, bounded_connections.CONNECT_S, SILENT_S) <= patience


async def test_a_statement_beyond_its_bound_is_cancelled(units: UnitOfWorkFactory) -> None:
    bounded = units.bounded(connection=LATE, statement=SOON)
    with pytest.raises(DatabaseUnavailableError):
        async with bounded() as uow:
            await run(uow, "SELECT pg_sleep(3600)")
    sleeping = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active'"

    async def nobody_sleeps() -> bool:
        async with units(one_statement=True) as uow:
            return bool(await run(uow, sleeping) == 0)

    await eventually(nobody_sleeps)


async def test_bounds_are_those_of_the_unit_of_work_and_not_of_the_one_before(units: UnitOfWorkFactory) -> None:
    bounded = units.bounded(connection=LATE, statement=SOON)

    async def bounded_pid() -> int | None:
        with suppress(DatabaseUnavailableError):  # on a busy machine even this may take longer
            async with bounded(one_statement=True) as uow:
                return int(await run(uow, PID))
        return None

    pid = await eventually(bounded_pid)
    async with units() as uow:
        assert await run(uow, PID) == pid
        await run(uow, f"SELECT pg_sleep({2 * SOON.total_seconds()})")


@pytest.mark.parametrize("one_statement", [False, True])
async def test_what_is_under_way_on_a_connection_that_falls_silent_fails_and_the_next_has_another(
    units: UnitOfWorkFactory, proxy: PostgresProxy, one_statement: bool
) -> None:
    bounded = units.bounded(connection=LATE, statement=timedelta(seconds=1))
    async with units(one_statement=True) as one, units(one_statement=True) as two:
        pids = {await run(one, PID), await run(two, PID)}
    proxy.stall()
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(DatabaseUnavailableError):
            async with bounded(one_statement=one_statement) as uow:
                await run(uow, PID)
        # Also the other, of which nobody has asked anything.
        async with units() as one, units() as two:
            assert not {await run(one, PID), await run(two, PID)} & pids


async def test_the_beginning_of_a_transaction_finds_a_silent_server_however_long_statements_may_take(
    units: UnitOfWorkFactory, proxy: PostgresProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = units.bounded(connection=LATE, statement=timedelta(hours=1))
    async with patient() as uow:
        await run(uow, PID)
    monkeypatch.setattr(bounded_connections, "PROVE_S", 0.5)
    proxy.stall()
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(DatabaseUnavailableError):
            async with patient() as uow:
                await run(uow, PID)


async def test_who_gives_up_on_a_silent_connection_is_not_held_by_it(
    units: UnitOfWorkFactory, proxy: PostgresProxy
) -> None:
    async def ask() -> None:
        async with asyncio.timeout(0.5), units() as uow:
            await run(uow, PID)
            proxy.stall()
            await run(uow, "SELECT pg_sleep(3600)")

    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(TimeoutError):
            await ask()


async def test_a_connection_that_ended_in_the_pool_is_replaced_and_nobody_hears_of_it(
    engine: AsyncEngine, units: UnitOfWorkFactory, proxy: PostgresProxy
) -> None:
    async with engine.connect() as connection:
        driver = await driver_of(connection)
    proxy.reset()
    await eventually(driver.is_closed)
    async with units() as uow:
        assert await run(uow, "SELECT 1") == 1


async def test_a_connection_is_waited_for_no_longer_than_the_unit_of_work_says(units: UnitOfWorkFactory) -> None:
    bounded = units.bounded(connection=SOON, statement=LATE)
    async with units(), units():
        with pytest.raises(DatabaseUnavailableError):
            async with bounded():
                pytest.fail("there is no connection left")
    async with units() as uow:
        assert await run(uow, "SELECT 1") == 1


async def test_a_server_that_takes_connections_and_says_nothing_is_not_waited_for(
    units: UnitOfWorkFactory, proxy: PostgresProxy
) -> None:
    proxy.stall(new=True)
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(DatabaseUnavailableError):
            async with units.bounded(connection=SOON, statement=LATE)():
                pytest.fail("there is no connection")
        with pytest.raises(DatabaseUnavailableError), map_to_unavailable():
            await open_connection(proxy.url, "test")


async def test_the_server_is_asked_once_for_types_of_its_own_and_each_connection_reads_them(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_connections, "_types", {})
    at = datetime(2026, 11, 27, tzinfo=UTC)
    asked = []
    for _ in range(3):
        connection = await open_connection(database_url, "test")
        row = await connection.fetchrow("SELECT $1::float8[] AS floats, $2::timestamptz[] AS times", [0.5, None], [at])
        assert (row["floats"], row["times"]) == ([0.5, None], [at])
        assert await connection.fetchval("SELECT $1::int8[]", [2**40]) == [2**40]
        # What a connection has introspected is among the statements that it prepared.
        prepared = "SELECT count(*) FROM pg_prepared_statements WHERE strpos(statement, $1) > 0"
        asked.append(await connection.fetchval(prepared, "typeinfo_tree"))
        await connection.close()
    assert asked == [1, 0, 0]


async def test_types_of_the_database_are_asked_for_anew(database_url: str) -> None:
    for word in ("left", "right"):
        connection = await open_connection(database_url, "test")
        async with connection.transaction():
            await connection.execute(f"CREATE TYPE own_{word} AS ENUM ('{word}')")
            assert await connection.fetchval(f"SELECT ARRAY['{word}']::own_{word}[]") == [word]
        await connection.close()

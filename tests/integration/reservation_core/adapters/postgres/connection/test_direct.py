"""Statements that go to the driver itself do what they do by SQLAlchemy."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from reservation_core.adapters.postgres.connection import direct
from reservation_core.adapters.postgres.connection.engine import open_engine
from tests.integration.reservation_core.adapters.postgres.conftest import Seed

DEATHS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, ConnectionError)
WAITING = {"ids": ["job-a", "job-b"]}


@asynccontextmanager
async def by_itself(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A connection on which each statement commits by itself."""
    async with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        yield connection


async def test_both_ways_find_the_same(engine: AsyncEngine, seed: Seed) -> None:
    await seed.job("job-a", await seed.user())
    async with by_itself(engine) as connection:
        directly = await direct.fetch(connection, "waiting_of", WAITING)
    async with engine.begin() as connection:
        in_a_transaction = await direct.fetch(connection, "waiting_of", WAITING)
    assert [dict(row) for row in directly] == [dict(row) for row in in_a_transaction]
    assert [row["id"] for row in directly] == ["job-a"]


async def test_in_a_transaction_it_belongs_to_it(engine: AsyncEngine, seed: Seed) -> None:
    """Even the first statement of one: what it wrote goes when the transaction is rolled back."""
    async with engine.connect() as connection:
        assert await direct.fetch(
            connection, "acquire_lease", {"holder": "me", "ttl_s": 60.0, "longest_s": 60.0, "counted": None}
        )
        await connection.rollback()
    assert await seed.rows("SELECT epoch, holder FROM planner_lease") == [{"epoch": 0, "holder": None}]


async def test_a_refusal_shows_nothing_of_the_row(engine: AsyncEngine) -> None:
    row = (
        '[{"id": "job-a", "kind": "job", "user_id": 999, "gpus": 2000, "nodes": 1, "duration_s": 60, "priority": 0, '
        '"actor": "ada", "workload": {"env": {"KEY": "hunter2"}}, "created_at": "2030-01-01T00:00:00Z"}]'
    )
    words = {"status": "queued", "reason_code": "submitted", "reason": "x", "event_kind": "submitted", "now": Seed.now}
    async with by_itself(engine) as connection:
        with pytest.raises(IntegrityError) as caught:
            await direct.fetch(connection, "submit_reservations", {"batch": row, **words})
    assert "reservations_gpus" in str(caught.value)
    assert "hunter2" not in str(caught.value)


async def test_a_connection_that_died_is_not_handed_to_the_next(database_url: str, seed: Seed) -> None:
    pool_of_one = open_engine(database_url, pool=1, application="test")
    try:
        async with by_itself(pool_of_one) as connection:
            pid = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one()
            await seed.run("SELECT CAST(pg_terminate_backend(:pid) AS integer)", pid=pid)
            with pytest.raises(DEATHS):
                await direct.fetch(connection, "waiting_of", WAITING)
        async with by_itself(pool_of_one) as connection:
            assert (await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one() != pid
    finally:
        await pool_of_one.dispose()

"""The planner's lease is not held up by a process that was stopped, at whatever moment, with its row locked."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from reservation_core.adapters.postgres.connection import silent_sessions
from reservation_core.adapters.postgres.connection.engine import open_connection
from reservation_core.adapters.postgres.planning.planning import Planning
from reservation_core.ports.transactions import DatabaseUnavailableError
from tests.waiting import eventually

TTL = timedelta(minutes=1)
_LOCK = "UPDATE planner_lease SET expires_at = '-infinity'"


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silent_sessions, "PATIENCE", timedelta(seconds=0.3))


@pytest.fixture
async def other(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """Another process's connection."""
    connection = await open_connection(database_url, "other")
    try:
        yield connection
    finally:
        connection.terminate()


async def acquire(engine: AsyncEngine) -> int | None:
    async with engine.begin() as connection:
        return await Planning(connection).acquire("successor", TTL)


async def renew(engine: AsyncEngine, epoch: int) -> bool:
    async with engine.begin() as connection:
        return await Planning(connection).renew(epoch, TTL)


async def test_who_is_stopped_within_a_statement_is_ended(engine: AsyncEngine, other: asyncpg.Connection) -> None:
    await other.execute(f"BEGIN; {_LOCK}")
    await other.prepare("SELECT 'the first of two parts'")
    with pytest.raises(DatabaseUnavailableError, match=r"kept acquire_lease waiting for 0\.3 s"):
        await acquire(engine)
    await eventually(other.is_closed)
    assert await acquire(engine) == 1


async def test_the_leader_keeps_its_lease_in_the_same_way(engine: AsyncEngine, other: asyncpg.Connection) -> None:
    epoch = await acquire(engine)
    assert epoch is not None
    await other.execute("BEGIN; SELECT FROM planner_lease FOR SHARE")
    await other.prepare("SELECT 'the first of two parts'")
    with pytest.raises(DatabaseUnavailableError, match="kept renew_lease waiting"):
        await renew(engine, epoch)
    await eventually(other.is_closed)
    assert await renew(engine, epoch)
    assert not await renew(engine, epoch + 1)


async def sleeps(engine: AsyncEngine) -> bool:
    """Whether a statement that lasts has begun."""
    asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
    async with engine.connect() as connection:
        found: int = (await connection.execute(text(asked))).scalar_one()
    return found == 1


async def test_who_works_is_waited_for(engine: AsyncEngine, other: asyncpg.Connection) -> None:
    await other.execute(f"BEGIN; {_LOCK}")
    working = asyncio.create_task(other.execute("SELECT pg_sleep(3600)"))
    await eventually(lambda: sleeps(engine))
    with pytest.raises(DatabaseUnavailableError):
        await acquire(engine)
    assert not working.done()
    other.terminate()
    with pytest.raises(asyncpg.PostgresError):
        await working


async def test_who_has_locked_nothing_is_left_alone(engine: AsyncEngine, other: asyncpg.Connection) -> None:
    await other.execute("BEGIN")
    await other.prepare("SELECT 'the first of two parts'")
    async with engine.begin() as holding:
        await Planning(holding).acquire("first", TTL)
        with pytest.raises(DatabaseUnavailableError):
            await acquire(engine)
    assert await other.fetchval("SELECT 1") == 1

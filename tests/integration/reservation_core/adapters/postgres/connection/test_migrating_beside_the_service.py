"""Revisions outside a transaction: writers go on while indexes are built, and what broke off is repeated."""

import asyncio
from typing import Any

import asyncpg
import pytest
from sqlalchemy import make_url

from reservation_core.adapters.postgres.connection import migrating

BEFORE = "0022_missed_starts"
INDEX = "reservations_unended_jobs"


async def connect(url: str) -> asyncpg.Connection:
    return await asyncpg.connect(make_url(url).set(drivername="postgresql").render_as_string(hide_password=False))


@pytest.fixture
async def older(database_url: str) -> str:
    """A database before the revision, with jobs in it."""
    await migrating.downgrade(database_url, BEFORE)
    connection = await connect(database_url)
    await connection.execute("INSERT INTO users (name, role, created_at) VALUES ('ada', 'user', now())")
    await connection.execute(
        "INSERT INTO reservations (id, kind, user_id, status, reason_code, reason, gpus, nodes, duration, priority, "
        "workload, created_at, changed_at, finished_at) SELECT 'bkg-' || i, 'booking', 1, 'ended', 'x', 'x', 1, 1, "
        "interval '1 hour', 0, '{}', now(), now(), now() FROM generate_series(1, 100) i"
    )
    await connection.execute(
        "INSERT INTO bookings (id, starts_at, ends_at) SELECT id, date_trunc('hour', now()), "
        "date_trunc('hour', now()) + interval '1 hour' FROM reservations"
    )
    await connection.close()
    return database_url


async def states(connection: asyncpg.Connection) -> dict[str, bool]:
    """The revision's indexes that are there, and whether they are valid."""
    found = await connection.fetch(
        "SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relname = $1",
        INDEX,
    )
    return {row["relname"]: row["indisvalid"] for row in found}


async def wait_until_building(connection: asyncpg.Connection) -> None:
    """Until an index is built, and waits for a transaction that has written to its table."""
    async with asyncio.timeout(60):
        while not await connection.fetchval(
            "SELECT EXISTS (SELECT FROM pg_stat_activity a JOIN pg_locks l ON l.pid = a.pid "
            "WHERE a.datname = current_database() AND a.query ~ '^CREATE .*INDEX CONCURRENTLY' AND NOT l.granted)"
        ):
            await asyncio.sleep(0.02)


async def write(connection: asyncpg.Connection) -> Any:
    """As the service does, and without waiting for long."""
    await connection.execute("SET lock_timeout = '5s'")
    return await connection.execute("UPDATE reservations SET name = 'another' WHERE id = 'bkg-7'")


async def test_writers_go_on_while_indexes_are_built(older: str) -> None:
    reader, other = await connect(older), await connect(older)
    # An index is not done before whoever could still look at former rows.
    looking = reader.transaction(isolation="repeatable_read")
    await looking.start()
    await reader.fetchval("SELECT count(*) FROM users")
    migration = asyncio.create_task(migrating.upgrade(older))
    await wait_until_building(other)
    assert await write(other) == "UPDATE 1"
    modes = await other.fetch(
        "SELECT l.mode FROM pg_locks l JOIN pg_stat_activity a USING (pid) JOIN pg_class c ON c.oid = l.relation "
        "WHERE a.query LIKE 'CREATE INDEX CONCURRENTLY%' AND c.relkind = 'r' AND c.relnamespace = "
        "to_regnamespace('public')"
    )
    assert {row["mode"] for row in modes} <= {"ShareUpdateExclusiveLock", "AccessShareLock"}
    assert not migration.done()
    await looking.commit()
    await migration
    assert (await migrating.status(older)).pending == ()
    copied = await other.fetchval("SELECT count(*) FROM bookings WHERE status = 'ended' AND user_id = 1")
    assert copied == 100
    await reader.close()
    await other.close()


async def test_what_broke_off_is_made_again(older: str) -> None:
    """An index whose building was ended is there and invalid: the next run drops it and builds it anew."""
    writer, other = await connect(older), await connect(older)
    holding = writer.transaction()
    await holding.start()
    await writer.execute("UPDATE reservations SET name = 'mine' WHERE id = 'bkg-5'")
    building = asyncio.create_task(other.execute(f"CREATE INDEX CONCURRENTLY {INDEX} ON reservations (status)"))
    third = await connect(older)
    await wait_until_building(third)
    pid = await third.fetchval("SELECT pid FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX CONCURRENTLY%' LIMIT 1")
    await third.fetchval("SELECT pg_cancel_backend($1)", pid)
    with pytest.raises(asyncpg.QueryCanceledError):
        await building
    await holding.rollback()
    assert await states(third) == {INDEX: False}
    await migrating.upgrade(older)
    assert await states(third) == {INDEX: True}
    definition = await third.fetchval("SELECT pg_get_indexdef(to_regclass($1))", INDEX)
    assert "(seq)" in definition
    # Steps that were done are done once more, and change nothing.
    await migrating.downgrade(older, "0023_long_history")
    await third.execute(f"UPDATE alembic_version SET version_num = '{BEFORE}'")
    await migrating.upgrade(older)
    assert (await migrating.status(older)).pending == ()
    for connection in (writer, other, third):
        await connection.close()

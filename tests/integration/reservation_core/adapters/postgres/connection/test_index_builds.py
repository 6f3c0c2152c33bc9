"""Indexes of tables that may be full are built CONCURRENTLY, and a build that broke off is made again."""

import asyncio

import pytest

from reservation_core.adapters.postgres.connection import migrating
from tests.integration.reservation_core.adapters.postgres.connection.test_migrating_beside_the_service import (
    BEFORE,
    connect,
    wait_until_building,
)

_UNDER_LOCK = {
    # Tables with few rows.
    "0027_token_scopes": {"tokens_made_with"},
    "0033_calendar_addresses_end": {"calendar_feeds_made_with"},
    # Partial ones by columns of the same revision, before this was tested: no row is in them.
    "0038_sessions": {"reservations_inactivity"},
    "0048_shares": {"allocations_asking"},
    # An exclusion constraint: PostgreSQL builds none CONCURRENTLY. No row is in it.
    "0059_cpu_jobs": {"allocations_cpu_calendar"},
}
"""Indexes of older tables that are built while nobody can write, by revision, since 0023. A new one needs a reason."""

_RECORD = """
CREATE SCHEMA recording;
CREATE TABLE recording.tables (id oid PRIMARY KEY, revision text);
CREATE TABLE recording.indexes (id oid PRIMARY KEY, of_table oid, name text, revision text, beside_writers boolean);
CREATE FUNCTION recording.note(at text) RETURNS void LANGUAGE sql AS $$
    INSERT INTO recording.tables SELECT oid, at FROM pg_class
        WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace ON CONFLICT DO NOTHING;
    INSERT INTO recording.indexes
        SELECT indexrelid, indrelid, c.relname, at, current_query() ~ '^CREATE (UNIQUE )?INDEX CONCURRENTLY'
        FROM pg_index JOIN recording.tables t ON t.id = indrelid JOIN pg_class c ON c.oid = indexrelid
        ON CONFLICT DO NOTHING;
$$;
SELECT recording.note('');
CREATE FUNCTION recording.note_command() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM recording.note((SELECT version_num FROM public.alembic_version));
END $$;
CREATE EVENT TRIGGER note_tables_and_indexes ON ddl_command_end EXECUTE FUNCTION recording.note_command();
"""

_SCHEMA = """
SELECT c.conrelid::regclass || ' ' || c.conname || ' ' || pg_get_constraintdef(c.oid) FROM pg_constraint c
    WHERE c.connamespace = 'public'::regnamespace
UNION ALL SELECT pg_get_indexdef(indexrelid) || ' ' || indisvalid FROM pg_index JOIN pg_class c ON c.oid = indexrelid
    WHERE c.relnamespace = 'public'::regnamespace
UNION ALL SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
UNION ALL SELECT pg_get_functiondef(p.oid) FROM pg_proc p
    WHERE p.pronamespace = 'public'::regnamespace AND p.prokind = 'f'
UNION ALL SELECT concat_ws(' ', table_name, column_name, data_type, is_nullable) FROM information_schema.columns
    WHERE table_schema = 'public'
ORDER BY 1
"""


async def test_indexes_of_older_tables_are_built_concurrently(database_url: str) -> None:
    """All tables count: a list of large ones would miss the next."""
    await migrating.downgrade(database_url, BEFORE)
    connection = await connect(database_url)
    await connection.execute(_RECORD)
    await migrating.upgrade(database_url)
    rows = await connection.fetch(
        "SELECT i.revision, i.name FROM recording.indexes i JOIN recording.tables t ON t.id = i.of_table "
        "WHERE NOT i.beside_writers AND t.revision < i.revision"
    )
    await connection.close()
    revisions = migrating.revisions()
    found: dict[str, set[str]] = {}
    for before, name in rows:
        # While a revision runs, the one before it is the database's.
        found.setdefault(revisions[revisions.index(before) + 1], set()).add(name)
    assert found == _UNDER_LOCK


async def test_places_of_jobs_without_gpus_are_made_again_after_they_broke_off(database_url: str) -> None:
    """Writers go on meanwhile, and the schema is the same in the end."""
    other, reader = await connect(database_url), await connect(database_url)
    schema = await other.fetch(_SCHEMA)
    await migrating.downgrade(database_url, "0058_disk_uses")
    # An index is not done before whoever could still look at former rows.
    async with reader.transaction(isolation="repeatable_read"):
        await reader.fetchval("SELECT count(*) FROM users")
        migration = asyncio.create_task(migrating.upgrade(database_url))
        await wait_until_building(other)
        await other.execute("SET lock_timeout = '5s'")
        await other.execute("UPDATE allocations SET held = held")
        await other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND query ~ '^CREATE (UNIQUE )?INDEX CONCURRENTLY'"
        )
        with pytest.raises(migrating.MigrationError):
            await migration
    assert (
        await other.fetchval("SELECT indisvalid FROM pg_index WHERE indexrelid = 'allocations_cpu_hold'::regclass")
        is False
    )
    await migrating.upgrade(database_url)
    assert await other.fetch(_SCHEMA) == schema
    # It may break off after its last step as well.
    await migrating.downgrade(database_url, "0059_cpu_jobs")
    await other.execute("UPDATE alembic_version SET version_num = '0058_disk_uses'")
    await migrating.upgrade(database_url)
    assert await other.fetch(_SCHEMA) == schema
    await reader.close()
    await other.close()

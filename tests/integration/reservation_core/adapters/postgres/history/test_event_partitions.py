"""The audit log by months: made ahead of time, dropped when old, append-only all the while."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from sqlalchemy.exc import DBAPIError

from reservation_core.adapters.postgres.connection import migrating
from reservation_core.adapters.postgres.connection.engine import open_engine
from reservation_core.adapters.postgres.connection.queues import open_client
from reservation_core.adapters.postgres.connection.wakeups import PostgresWakeups
from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.domain.history.retention import HistoryKind, RetentionRules
from reservation_core.ports.history.retention import LockTimeoutError
from reservation_core.usecases.history.audit_chain import chain_events
from reservation_core.usecases.history.retention import RetentionReport, RetentionWalk, remove_old_history
from tests.clusters.scripted_cluster import ScriptedCluster

FOR_EVER = RetentionRules(None, None, None, None, None, None)
BEFORE_PARTITIONS = "0020_cordons_and_audit"
OUR_TIME = datetime.now(UTC).replace(microsecond=0)
RECORD = "INSERT INTO events (at, actor, kind, subject) VALUES (:at, 'ada', 'node_fenced', :subject) RETURNING id"


@pytest.fixture
async def uow(database_url: str) -> AsyncIterator[UnitOfWorkFactory]:
    engine = open_engine(database_url, pool=5, application="test")
    try:
        yield UnitOfWorkFactory(engine, await open_client(engine), PostgresWakeups(database_url, "test"))
    finally:
        await engine.dispose()


def keeping_events(days: float) -> RetentionRules:
    return RetentionRules(timedelta(days=days), None, None, None, None, None)


async def chain_and_remove(
    uow: UnitOfWorkFactory, cluster: ScriptedCluster, rules: RetentionRules, walk: RetentionWalk
) -> RetentionReport:
    """An event outside the chain is not removed."""
    while await chain_events(uow):
        pass
    return await remove_old_history(uow, cluster, rules, walk)


async def partitions(seed: Any) -> list[str]:
    return [row["name"] for row in await seed.rows("SELECT name FROM event_partitions ORDER BY name")]


async def subjects(seed: Any) -> list[str]:
    return [row["subject"] for row in await seed.rows("SELECT subject FROM events ORDER BY id")]


async def test_the_months_to_come_are_there(seed: Any) -> None:
    # The database that this one is a copy of may have been made the month before.
    assert await seed.run("SELECT make_event_partitions(3)") <= 1
    month = datetime.now(UTC).replace(day=1)
    names = []
    for _ in range(4):
        names.append(f"events_{month:%Y_%m}")
        month = (month + timedelta(days=32)).replace(day=1)
    assert (await partitions(seed))[-5:] == sorted([*names, "events_default"])[-5:]
    assert await seed.run("SELECT make_event_partitions(3)") == 0
    assert await seed.run("SELECT make_event_partitions(5)") == 2


async def test_each_line_lies_in_its_month_and_has_its_number(seed: Any) -> None:
    ids = [
        await seed.run(RECORD, at=OUR_TIME + timedelta(days=days), subject=f"node-{days}")
        for days in (0, 31, 62, 4000, -4000)
    ]
    assert ids == sorted(ids)
    places = [
        row["place"] for row in await seed.rows("SELECT tableoid::regclass::text AS place FROM events ORDER BY id")
    ]
    assert places[3:] == ["events_default"] * 2
    assert places[0] == f"events_{OUR_TIME:%Y_%m}"
    assert "events_default" not in places[:3]


@pytest.mark.parametrize("days", [0, -4000])
@pytest.mark.parametrize("table", ["events", "its partition"])
@pytest.mark.parametrize(
    "statement", ["UPDATE {} SET actor = 'eve'", "DELETE FROM {}", "TRUNCATE {}"], ids=["update", "delete", "truncate"]
)
async def test_no_line_is_changed_or_removed_in_any_partition(seed: Any, days: int, table: str, statement: str) -> None:
    await seed.run(RECORD, at=OUR_TIME + timedelta(days=days), subject="node-a")
    if table != "events":
        [row] = await seed.rows("SELECT tableoid::regclass::text AS place FROM events")
        table = row["place"]
    with pytest.raises(DBAPIError, match="append-only"):
        await seed.run(statement.format(table))


async def test_what_is_old_goes_by_whole_partitions(seed: Any, uow: UnitOfWorkFactory) -> None:
    for first, last in (("2020-01-01", "2020-02-01"), ("2020-02-01", "2020-03-01")):
        bounds = f"FOR VALUES FROM ('{first}Z') TO ('{last}Z')"
        await seed.run("SELECT make_event_partition(:name, :bounds)", name=f"events_{first}", bounds=bounds)
    for at in (datetime(2020, 1, 5, tzinfo=UTC), datetime(2020, 2, 29, tzinfo=UTC), OUR_TIME):
        await seed.run(RECORD, at=at, subject=f"{at:%Y-%m}")
    walk = RetentionWalk()
    left = (OUR_TIME - datetime(2020, 3, 1, tzinfo=UTC)).days

    async def look(rules: RetentionRules) -> int:
        return (await chain_and_remove(uow, ScriptedCluster(), rules, walk)).removed.get(HistoryKind.EVENTS, 0)

    assert await look(FOR_EVER) == 0
    assert await look(keeping_events(left + 2)) == 1
    assert await subjects(seed) == ["2020-02", f"{OUR_TIME:%Y-%m}"]
    assert await look(keeping_events(left - 2)) == 1
    assert await look(keeping_events(1)) == 0
    assert await subjects(seed) == [f"{OUR_TIME:%Y-%m}"]
    [state] = await seed.rows("SELECT removed, oldest_at FROM retention_state WHERE kind = 'events'")
    assert state == {"removed": 2, "oldest_at": OUR_TIME}


async def test_what_fits_into_no_month_goes_when_all_of_it_is_old(seed: Any, uow: UnitOfWorkFactory) -> None:
    far = datetime(2020, 1, 5, tzinfo=UTC)
    await seed.run(RECORD, at=far, subject="old")
    ahead = await seed.run(RECORD, at=OUR_TIME + timedelta(days=4000), subject="ahead")
    assert ahead
    report = await chain_and_remove(uow, ScriptedCluster(), keeping_events(400), RetentionWalk())
    assert report.removed == {}
    assert await subjects(seed) == ["old", "ahead"]


async def test_a_default_partition_with_old_lines_alone_is_replaced(seed: Any, uow: UnitOfWorkFactory) -> None:
    await seed.run(RECORD, at=datetime(2020, 1, 5, tzinfo=UTC), subject="old")
    report = await chain_and_remove(uow, ScriptedCluster(), keeping_events(400), RetentionWalk())
    assert report.removed == {HistoryKind.EVENTS: 1}
    assert await subjects(seed) == []
    with pytest.raises(DBAPIError, match="append-only"):
        await seed.run("TRUNCATE events_default")


async def test_events_of_what_is_not_over_stay(seed: Any, uow: UnitOfWorkFactory) -> None:
    made_at = datetime(2019, 12, 31, tzinfo=UTC)
    user = await seed.user()
    await seed.run(
        "INSERT INTO reservations (id, kind, user_id, status, reason_code, reason, gpus, nodes, duration, priority, "
        "workload, created_at, changed_at) VALUES ('job-a', 'job', :user, 'queued', 'x', 'x', 1, 1, '1 hour', 0, '{}', "
        ":at, :at)",
        user=user,
        at=made_at,
    )
    await seed.run(RECORD, at=made_at + timedelta(days=1), subject="node-a")
    assert (await chain_and_remove(uow, ScriptedCluster(), keeping_events(1), RetentionWalk())).removed == {}
    assert await subjects(seed) == ["node-a"]


async def test_who_reads_for_long_puts_a_drop_off_and_keeps_no_writer_waiting(
    seed: Any, uow: UnitOfWorkFactory, database_url: str
) -> None:
    await seed.run(RECORD, at=datetime(2020, 1, 5, tzinfo=UTC), subject="old")
    reader = await asyncpg.connect(database_url.replace("postgresql+asyncpg://", "postgresql://"))
    try:
        reading = reader.transaction()
        await reading.start()
        await reader.fetch("SELECT FROM events")
        look = asyncio.create_task(chain_and_remove(uow, ScriptedCluster(), keeping_events(400), RetentionWalk()))
        await seed.run(RECORD, at=OUR_TIME, subject="new")
        report = await look
        assert (report.removed, len(report.put_off)) == ({}, 1)
        with pytest.raises(LockTimeoutError):
            async with uow() as work:
                await work.retention.drop_events(OUR_TIME - timedelta(days=400))
        await reading.rollback()
    finally:
        await reader.close()
    assert (await chain_and_remove(uow, ScriptedCluster(), keeping_events(400), RetentionWalk())).removed == {
        HistoryKind.EVENTS: 1
    }
    assert await subjects(seed) == ["new"]


async def test_a_full_table_becomes_a_partition_without_being_copied(empty_database_url: str) -> None:
    url = empty_database_url
    await migrating.upgrade(url)
    await migrating.downgrade(url, BEFORE_PARTITIONS)
    connection = await asyncpg.connect(url.replace("postgresql+asyncpg://", "postgresql://"))
    files = "SELECT pg_relation_filenode(indexrelid) FROM pg_index WHERE indrelid = $1::regclass"
    try:
        await connection.execute(
            "INSERT INTO events (at, actor, kind, subject) "
            "SELECT now() - n * interval '1 day', 'ada', 'node_fenced', 'n' || n FROM generate_series(1, 1000) n"
        )
        await connection.execute("CREATE ROLE auditor_of_test NOLOGIN")
        await connection.execute("GRANT SELECT ON events TO auditor_of_test")
        rows = await connection.fetch("SELECT * FROM events ORDER BY id")
        table = await connection.fetchval("SELECT pg_relation_filenode('events')")
        indexes = {row[0] for row in await connection.fetch(files, "events")}

        await migrating.upgrade(url)
        assert await connection.fetch("SELECT * FROM events ORDER BY id") == rows
        assert await connection.fetchval("SELECT pg_relation_filenode('events_first')") == table
        assert {row[0] for row in await connection.fetch(files, "events_first")} == indexes
        assert await connection.fetchval("SELECT has_table_privilege('auditor_of_test', 'events', 'SELECT')")
        newest = await connection.fetchval(
            "INSERT INTO events (at, actor, kind) VALUES (now(), 'ada', 'node_fenced') RETURNING id"
        )
        assert newest == 1001

        await migrating.downgrade(url, BEFORE_PARTITIONS)
        assert len(await connection.fetch("SELECT FROM events")) == 1001
        await migrating.upgrade(url)
        assert (await connection.fetch("SELECT * FROM events ORDER BY id"))[:1000] == rows
    finally:
        await connection.execute("DROP OWNED BY auditor_of_test")
        await connection.execute("DROP ROLE auditor_of_test")
        await connection.close()

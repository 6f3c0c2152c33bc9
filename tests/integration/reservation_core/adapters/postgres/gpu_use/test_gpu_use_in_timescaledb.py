"""Samples of GPUs where the server has TimescaleDB, moves between both kinds of storage, and a server without it.

`GPU_DEV_TEST_DATABASE_URL` names a server that has it. All other tests of samples run on either kind.
"""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import psycopg
import pytest
from pytest_postgresql.executors import NoopExecutor
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError, ProgrammingError

from reservation_core.adapters.postgres.connection.engine import open_engine
from reservation_core.adapters.postgres.connection.migrating import downgrade, let_work, upgrade
from reservation_core.adapters.postgres.connection.queues import open_client
from reservation_core.adapters.postgres.connection.wakeups import PostgresWakeups
from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.domain.gpu_use.samples import GpuSample
from reservation_core.domain.gpu_use.spans import Resolution
from reservation_core.usecases.gpu_use.keep_use import keep_use
from reservation_core.usecases.gpu_use.store_samples import store_samples
from tests.database.database_roles import owner_and_application
from tests.database.sql import sql
from tests.integration.reservation_core.adapters.postgres.conftest import Seed

BEFORE = "0063_predicted_dependants"
TEN, MINUTE, HOUR, DAY = timedelta(seconds=10), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
NOW = datetime.now(UTC)
NOON = NOW.replace(hour=12, minute=0, second=0, microsecond=0) - 5 * DAY
"""Of a day whose minutes are over and whose samples are dropped."""
SHAPE = (
    "SELECT 'column' AS of, attname AS name, format_type(atttypid, atttypmod) || attnotnull AS detail "
    "FROM pg_attribute WHERE attrelid IN ('gpu_samples'::regclass, 'gpu_minutes'::regclass) AND attnum > 0 "
    "UNION ALL SELECT 'constraint', conname, pg_get_constraintdef(oid) FROM pg_constraint "
    "WHERE conrelid IN ('gpu_samples'::regclass, 'gpu_minutes'::regclass) "
    "UNION ALL SELECT 'index', indexrelid::regclass::text, indisunique::text FROM pg_index "
    "WHERE indrelid IN ('gpu_samples'::regclass, 'gpu_minutes'::regclass) ORDER BY 1, 2, 3"
)


def on_server(server: NoopExecutor, query: str) -> Any:
    where = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    with psycopg.connect(**where, dbname="postgres") as connection:
        return connection.execute(query.encode()).fetchone()[0]  # type: ignore[index]


@pytest.fixture
def timescaledb(database_server: NoopExecutor) -> None:
    if not on_server(database_server, "SELECT current_setting('timescaledb.max_background_workers', true) IS NOT NULL"):
        pytest.skip("needs a server with TimescaleDB: name one in GPU_DEV_TEST_DATABASE_URL")


@pytest.fixture
def compression(timescaledb: None, database_server: NoopExecutor) -> None:
    if "apache" in (on_server(database_server, "SELECT current_setting('timescaledb.license', true)") or ""):
        pytest.skip("needs timescaledb.license = timescale")


@pytest.fixture
def roles(empty_database_url: str) -> Iterator[tuple[str, str]]:
    with owner_and_application(empty_database_url) as urls:
        yield urls


@pytest.fixture
async def superuser(empty_database_url: str) -> AsyncIterator[Seed]:
    """The superuser in a database that is not migrated yet."""
    engine = open_engine(empty_database_url, pool=1, application="tests")
    yield Seed(engine)
    await engine.dispose()


@pytest.fixture
async def uow(engine: Any, database_url: str) -> UnitOfWorkFactory:
    return UnitOfWorkFactory(engine, await open_client(engine), PostgresWakeups(database_url, "test"))


async def storage(seed: Any) -> set[str]:
    kinds = await seed.rows(
        "SELECT CASE relkind WHEN 'p' THEN 'partitions' ELSE 'timescaledb' END AS kind FROM pg_class "
        "WHERE oid IN ('gpu_samples'::regclass, 'gpu_minutes'::regclass)"
    )
    return {row["kind"] for row in kinds}


async def add_minutes(seed: Any, day: datetime, gpus: int = 2) -> None:
    """Minutes of a whole day, of which TimescaleDB compresses each GPU's for itself."""
    await seed.run(
        "INSERT INTO gpu_minutes (at, gpu_id, samples, utilisation_mean, utilisation) "
        "SELECT CAST(:day AS timestamptz) + n * interval '1 min', g, 6, n % 900, n % 900 + 50 "
        "FROM generate_series(0, 1439) n, generate_series(1, :gpus) g",
        day=day.replace(hour=0), gpus=gpus,
    )  # fmt: skip


MINUTES = "SELECT * FROM gpu_minutes ORDER BY at, gpu_id"
COMPRESSED = "SELECT count(*) FROM gpu_use_chunks() WHERE is_compressed"


async def test_each_day_is_a_chunk(timescaledb: None, seed: Any) -> None:
    assert await storage(seed) == {"timescaledb"}
    midnight = NOW.replace(hour=0, minute=0, second=0, microsecond=0)
    for day in (midnight, midnight - DAY):
        await seed.run("INSERT INTO gpu_samples (at, gpu_id, xid) VALUES (:at, 1, 0)", at=day)
    rows = await seed.rows("SELECT parent, ends_at FROM gpu_use_partitions ORDER BY ends_at")
    assert [(row["parent"], row["ends_at"]) for row in rows] == [
        ("gpu_samples", midnight), ("gpu_samples", midnight + DAY)
    ]  # fmt: skip
    assert await seed.run("SELECT make_gpu_use_partitions()") == 0


async def test_old_minutes_are_compressed_and_read_as_before(
    compression: None, uow: UnitOfWorkFactory, seed: Any
) -> None:
    yesterday = NOW.replace(hour=12, minute=0, second=0, microsecond=0) - DAY
    for day in (NOON, yesterday):
        await add_minutes(seed, day)
    before = await seed.rows(MINUTES)
    for _ in range(2):
        await keep_use(uow)
        assert await seed.run(COMPRESSED) == 1
    assert await seed.rows(MINUTES) == before
    assert await seed.run("SELECT count(*) FROM gpu_use_partitions WHERE parent = 'gpu_minutes'") == 2


async def test_a_late_sample_of_a_compressed_day_is_rolled_up(
    compression: None, uow: UnitOfWorkFactory, seed: Any
) -> None:
    [gpu, _] = await seed.node()
    await add_minutes(seed, NOON, gpus=gpu)
    await keep_use(uow)
    assert await seed.run(COMPRESSED) == 1
    for second in (0, 10):
        await seed.run(
            "INSERT INTO gpu_samples (at, gpu_id, utilisation, xid) VALUES (:at, :gpu, 1000, 0)",
            at=NOON + timedelta(seconds=second), gpu=gpu,
        )  # fmt: skip
    async with uow() as work:
        await work.gpu_use.roll_up(Resolution.MINUTES, NOON, NOON + MINUTE)
    rows = await seed.rows(
        "SELECT samples, utilisation_mean FROM gpu_minutes WHERE at = :at AND gpu_id = :gpu", at=NOON, gpu=gpu
    )
    assert rows == [{"samples": 2, "utilisation_mean": 1000}]
    assert await seed.run("SELECT count(*) FROM gpu_minutes") == 1440 * gpu


async def test_compressed_minutes_go_after_thirty_days(compression: None, uow: UnitOfWorkFactory, seed: Any) -> None:
    old = NOON - 30 * DAY
    await add_minutes(seed, NOON)
    await keep_use(uow)
    await add_minutes(seed, old)
    await seed.run("SELECT compress_chunk(chunk) FROM gpu_use_chunks() WHERE ends_at < :at", at=old + DAY)
    assert await seed.run(COMPRESSED) == 2
    await keep_use(uow)
    assert await seed.run(COMPRESSED) == 1
    assert await seed.run("SELECT min(at) FROM gpu_minutes") == NOON.replace(hour=0)
    assert await seed.run("SELECT count(*) FROM gpu_minutes") == 2880


async def test_other_tables_are_read_without_timescaledbs_skip_scans(
    compression: None, uow: UnitOfWorkFactory, seed: Any
) -> None:
    """TimescaleDB 2.30 can't execute those of statements with a condition that is evaluated once."""
    await seed.user()
    query = "SELECT DISTINCT reservation_id FROM allocations WHERE planned AND CAST(:wanted AS boolean)"
    async with uow() as work:
        await sql(work, "SET LOCAL enable_hashagg = off")
        await sql(work, "SET LOCAL enable_seqscan = off")
        assert (await sql(work, query, wanted=True)).all() == []


async def test_samples_move_between_both_kinds_of_storage(
    timescaledb: None, uow: UnitOfWorkFactory, seed: Any, database_url: str
) -> None:
    await add_minutes(seed, NOON)
    await seed.run("INSERT INTO gpu_samples (at, gpu_id, xid) VALUES (:at, 1, 0)", at=NOW)
    await seed.run("INSERT INTO gpu_samples (at, gpu_id, xid) VALUES (:at, 1, 0)", at=NOW - DAY)
    await keep_use(uow)
    await seed.run("GRANT SELECT ON gpu_samples, gpu_minutes TO PUBLIC")
    rights = (
        "SELECT c.relname, c.relacl::text FROM pg_class c "
        "WHERE c.oid IN ('gpu_samples'::regclass, 'gpu_minutes'::regclass) ORDER BY 1"
    )
    everything = [MINUTES, "SELECT * FROM gpu_samples ORDER BY at", SHAPE, rights]
    before = [await seed.rows(query) for query in everything]
    await seed.run("SELECT store_gpu_use_in('partitions')")
    assert await storage(seed) == {"partitions"}
    assert [await seed.rows(query) for query in everything] == before
    assert await seed.run("SELECT count(*) FROM gpu_use_partitions") >= 7
    await keep_use(uow)
    await seed.run("SELECT store_gpu_use_in('partitions')")
    await seed.run("SELECT store_gpu_use_in('timescaledb')")
    assert await storage(seed) == {"timescaledb"}
    assert [await seed.rows(query) for query in everything] == before
    await keep_use(uow)


async def test_a_database_can_leave_for_a_server_without_timescaledb(timescaledb: None, seed: Any) -> None:
    await add_minutes(seed, NOON)
    await seed.run("SELECT store_gpu_use_in('partitions')")
    await seed.run("DROP EXTENSION timescaledb")
    assert await seed.run("SELECT count(*) FROM gpu_minutes") == 2880
    await seed.run("SELECT make_gpu_use_partitions()")
    assert await seed.run("SELECT drop_gpu_use_partition()") == 0


async def test_rows_that_are_there_stay_until_they_are_moved(
    timescaledb: None, superuser: Seed, empty_database_url: str
) -> None:
    await upgrade(empty_database_url)
    await downgrade(empty_database_url, BEFORE)
    assert await storage(superuser) == {"partitions"}
    await superuser.run("INSERT INTO gpu_samples (at, gpu_id, xid) VALUES (:at, 1, 0)", at=NOW)
    await upgrade(empty_database_url)
    assert await storage(superuser) == {"partitions"}
    await superuser.run("SELECT store_gpu_use_in('timescaledb')")
    assert await storage(superuser) == {"timescaledb"}
    await downgrade(empty_database_url, BEFORE)
    assert await storage(superuser) == {"partitions"}
    assert await superuser.run("SELECT count(*) FROM gpu_samples") == 1
    assert await superuser.run("SELECT make_gpu_use_partitions()") == 0
    assert await superuser.run("SELECT drop_gpu_use_partition()") == 0


async def test_who_may_not_create_the_extension_has_partitions(
    timescaledb: None, roles: tuple[str, str], superuser: Seed
) -> None:
    owner, _ = roles
    await upgrade(owner)
    assert await storage(superuser) == {"timescaledb"}
    await downgrade(owner, BEFORE)
    await superuser.run("DROP EXTENSION timescaledb")
    await superuser.run(f'REVOKE CREATE ON DATABASE "{make_url(owner).database}" FROM {make_url(owner).username}')
    await upgrade(owner)
    assert await storage(superuser) == {"partitions"}


async def test_the_application_works_with_chunks_and_drops_none_too_early(
    timescaledb: None, roles: tuple[str, str], database_server: NoopExecutor
) -> None:
    owner, application = roles
    await upgrade(owner)
    await let_work(owner, make_url(application).username or "")
    owned, engine = (open_engine(url, pool=2, application="tests") for url in (owner, application))
    seed, work = Seed(owned), Seed(engine)
    uow = UnitOfWorkFactory(engine, await open_client(engine), PostgresWakeups(application, "test"))
    try:
        await seed.node()
        await seed.run("UPDATE gpus SET uuid = 'GPU-' || index")
        looks = [GpuSample(f"GPU-{gpu}", NOW - n * TEN, 0.5) for n in range(60) for gpu in (0, 1)]
        assert len(await store_samples(uow, looks)) == 120
        assert len(await store_samples(uow, looks)) == 120  # again: not by COPY
        await add_minutes(seed, NOON)
        await add_minutes(seed, NOON - 30 * DAY)
        await work.run("UPDATE gpu_use_state SET minutes_until = :at", at=(NOW - HOUR).replace(second=0, microsecond=0))
        await keep_use(uow)
        assert await work.run("SELECT count(*) FROM gpu_samples") == 120
        assert await work.run("SELECT count(*) FROM gpu_minutes WHERE at < :at", at=NOW - DAY) == 2880
        assert await work.run("SELECT count(*) FROM gpu_minutes WHERE at > :at", at=NOW - DAY) >= 8
        for statement in (
            "SELECT drop_chunks('gpu_samples', older_than => now() + interval '9 days')",
            "SELECT store_gpu_use_in('partitions')",
            "TRUNCATE gpu_samples",
            f"DROP TABLE {await seed.run('SELECT CAST(chunk AS regclass) FROM gpu_use_chunks() LIMIT 1')}",
        ):
            with pytest.raises((ProgrammingError, DBAPIError), match=r"must be owner|permission denied|, has to move"):
                await work.run(statement)
        await seed.run("SELECT store_gpu_use_in('partitions')")
        await keep_use(uow)
        assert await work.run("SELECT count(*) FROM gpu_samples") == 120
    finally:
        await engine.dispose()
        await owned.dispose()


async def test_tables_of_others_in_timescaledb_keep_no_day_from_being_dropped(
    timescaledb: None, roles: tuple[str, str], superuser: Seed
) -> None:
    owner, _ = roles
    await upgrade(owner)
    owned = open_engine(owner, pool=1, application="tests")
    seed = Seed(owned)
    try:
        await superuser.run("CREATE SCHEMA others")
        await superuser.run("CREATE TABLE others.weather (at timestamptz NOT NULL)")
        await superuser.run("SELECT create_hypertable('others.weather', by_range('at'))")
        await superuser.run("INSERT INTO others.weather VALUES (now())")
        await add_minutes(seed, NOON - 30 * DAY)
        await add_minutes(seed, NOON)
        assert await seed.run("SELECT drop_gpu_use_partition()") is not None
        assert await seed.run("SELECT min(at) FROM gpu_minutes") == NOON.replace(hour=0)
        await seed.run("SELECT drop_gpu_use_partition()")  # which compresses the other day
        await seed.run("SELECT store_gpu_use_in('partitions')")
        assert await seed.run("SELECT count(*) FROM gpu_minutes") == 2880
    finally:
        await superuser.run("DROP SCHEMA others CASCADE")
        await owned.dispose()


async def test_a_superuser_does_not_take_the_samples_from_their_owner(roles: tuple[str, str], superuser: Seed) -> None:
    owner, _ = roles
    await upgrade(owner)
    [now] = await storage(superuser)
    other = "partitions" if now == "timescaledb" else "timescaledb"
    with pytest.raises(ProgrammingError, match=f"owner of the samples, {make_url(owner).username}, has to move"):
        await superuser.run(f"SELECT store_gpu_use_in('{other}')")
    assert await storage(superuser) == {now}


async def test_a_server_without_timescaledb_says_so(database_server: NoopExecutor, seed: Any) -> None:
    if on_server(database_server, "SELECT current_setting('timescaledb.max_background_workers', true) IS NOT NULL"):
        pytest.skip("this server has TimescaleDB")
    assert await storage(seed) == {"partitions"}
    with pytest.raises(DBAPIError, match="this server has no TimescaleDB") as refused:
        await seed.run("SELECT store_gpu_use_in('timescaledb')")
    cause = refused.value.orig.__cause__  # type: ignore[union-attr]
    assert isinstance(cause, asyncpg.FeatureNotSupportedError)
    with pytest.raises(DBAPIError, match="not in paper"):
        await seed.run("SELECT store_gpu_use_in('paper')")
    await seed.run("SELECT store_gpu_use_in('partitions')")

"""Primary and replica of the chart gpu-dev-server, started for real: failing over, backups, passwords."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import asyncpg
import pytest

from reservation_core.adapters.postgres.connection.migrating import status, upgrade
from tests.chart.dev_server.database_pods import (
    FAILED_OVER,
    LONG_S,
    PASSWORD,
    SMALL,
    Pod,
    database_pods,
    sqlalchemy_url,
    streams,
)
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
async def pods(quick_folder: Path) -> AsyncIterator[Callable[[str], Pod]]:
    """Makes servers; at the end they are gone. In memory: a copy syncs thousands of files, and disks are busy."""
    with database_pods(quick_folder / "chart-database") as make:
        yield make


async def test_failing_over_loses_nothing_that_was_acknowledged(pods: Callable[[str], Pod]) -> None:
    primary, replica = pods("postgres-primary"), pods("postgres-replica")
    primary.start(SMALL, primary)
    replica.start(SMALL, primary)
    # As the API does: PGMQ and all, by an owner who is no superuser.
    connection = await primary.connect()
    await streams(primary, replica)
    await upgrade(sqlalchemy_url(primary))
    assert not (await status(sqlalchemy_url(primary))).pending
    assert await connection.fetchval("SHOW synchronous_standby_names") == 'FIRST 1 ("postgres-replica-0")'
    assert not await connection.fetchval("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")

    acknowledged: list[int] = []
    enough = asyncio.Event()

    async def submit() -> None:
        try:
            while True:
                sent = await connection.fetchval("SELECT pgmq.send('gpu_jobs', '{}'::jsonb)")
                acknowledged.append(sent)
                if len(acknowledged) >= 200:
                    enough.set()
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError):
            # The driver's own state is the last of these when the connection goes just as a statement begins.
            return

    submitting = asyncio.create_task(submit())
    async with asyncio.timeout(LONG_S):
        await enough.wait()
    primary.end(signal.SIGKILL)
    await submitting

    # What `helm upgrade --set postgres.primaryIs=postgres-replica` brings about.
    replica.end()
    replica.start(FAILED_OVER, replica)
    after = await replica.connect()
    assert not await after.fetchval("SELECT pg_is_in_recovery()")
    kept = {row["msg_id"] for row in await after.fetch("SELECT msg_id FROM pgmq.q_gpu_jobs")}
    assert kept >= {*acknowledged}
    assert len(acknowledged) >= 200

    # The former primary comes back as the standby: what it had is kept aside, and commits are answered again.
    primary.start(FAILED_OVER, replica)
    await streams(replica, primary)
    await after.execute("SELECT pgmq.send('gpu_jobs', '{}'::jsonb)")
    assert "its data are kept in" in primary.log
    assert len([*primary.data.parent.glob("pgdata.was-primary-*")]) == 1
    read = await primary.connect()
    await eventually(lambda: read.fetchval("SELECT count(*) = $1 FROM pgmq.q_gpu_jobs", len(kept) + 1), LONG_S)
    with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
        await read.execute("SELECT pgmq.send('gpu_jobs', '{}'::jsonb)")
    for pod in (after, read):
        await pod.close()
    assert PASSWORD not in primary.log + replica.log


async def test_while_the_standby_is_away_nothing_is_acknowledged_unless_that_was_chosen(
    pods: Callable[[str], Pod],
) -> None:
    primary, replica = pods("postgres-primary"), pods("postgres-replica")
    primary.start(SMALL, primary)
    replica.start(SMALL, primary)
    connection = await primary.connect()
    await streams(primary, replica)
    await connection.execute("CREATE TABLE t (id int)")
    replica.end(signal.SIGKILL)
    writing = asyncio.create_task(connection.execute("INSERT INTO t VALUES (1)"))
    done, _ = await asyncio.wait({writing}, timeout=3)
    assert not done
    # It is answered as soon as the standby is back, which continues where it was.
    replica.start(SMALL, primary)
    async with asyncio.timeout(LONG_S):
        await writing
    await connection.close()
    assert replica.end() == 0
    assert primary.end() == 0

    alone = {"postgres": {**SMALL["postgres"], "replication": {"synchronous": False}}}
    primary.start(alone, primary)
    connection = await primary.connect()
    await connection.execute("INSERT INTO t VALUES (2)")
    assert [row["id"] for row in await connection.fetch("SELECT id FROM t ORDER BY id")] == [1, 2]
    await connection.close()


async def test_a_backup_waits_for_a_server_that_is_away(pods: Callable[[str], Pod]) -> None:
    values = {"postgres": {**SMALL["postgres"], "replica": {"enabled": False}}}
    primary = pods("postgres-primary")
    primary.start(values, primary)
    await (await primary.connect()).close()
    assert primary.end() == 0
    backups = primary.data.parent
    making = asyncio.create_task(asyncio.to_thread(primary.run, "backup.sh", BACKUPS=str(backups), KEEP="2"))
    done, _ = await asyncio.wait({making}, timeout=3)
    assert not done
    primary.start(values, primary)
    made = await making
    assert (made.returncode, len([*backups.glob("gpu-dev-*.dump")])) == (0, 1), made.stderr
    gone = primary.end()
    assert gone == 0
    refused = primary.run("backup.sh", BACKUPS=str(backups), KEEP="2", PG_WAIT_S="0")
    assert refused.returncode != 0


OTHERS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = 'gpudev' AND pid <> pg_backend_pid() "
    "AND backend_type = 'client backend'"
)


async def is_alone(connection: asyncpg.Connection) -> bool:
    """Whether no other connection is open: the server learns of an end later than who ended it."""
    return bool(await connection.fetchval(OTHERS) == 0)


async def closed(pod: Pod, connection: asyncpg.Connection) -> None:
    """Close the last connection, and wait until the server knows of it."""
    await connection.close()
    superuser = await asyncpg.connect(host=str(pod.socket), port=pod.port, user="postgres", database="postgres")
    try:
        await eventually(lambda: is_alone(superuser), LONG_S)
    finally:
        await superuser.close()


async def test_a_backup_is_whole_and_brings_back_what_was_and_nothing_else(pods: Callable[[str], Pod]) -> None:
    values = {"postgres": {**SMALL["postgres"], "replica": {"enabled": False}}}
    primary = pods("postgres-primary")
    primary.start(values, primary)
    connection = await primary.connect()
    await upgrade(sqlalchemy_url(primary))
    await connection.execute("SELECT pgmq.send('gpu_jobs', '{\"kept\": 1}'::jsonb)")
    backups = primary.data.parent
    for year in (2020, 2021, 2022):
        (backups / f"gpu-dev-{year}0101T000000Z.dump").write_bytes(b"older")
    made = primary.run("backup.sh", BACKUPS=str(backups), KEEP="2")
    assert made.returncode == 0, made.stderr
    assert (primary.socket / "pgpass").stat().st_mode & 0o777 == 0o600
    older, newest = sorted(backups.glob("gpu-dev-*.dump"))
    assert older.name == "gpu-dev-20220101T000000Z.dump"
    await connection.execute("SELECT pgmq.send('gpu_jobs', '{\"lost\": 1}'::jsonb)")
    await connection.execute("CREATE TABLE made_since (id int)")
    # Not while somebody works with it.
    await eventually(lambda: is_alone(connection), LONG_S)
    refused = primary.run("restore.sh", BACKUPS=str(backups))
    assert refused.returncode == 1
    assert "1 connections are open" in refused.stderr
    await connection.close()
    # Nothing of one that breaks off.
    broken = backups / "broken.dump"
    broken.write_bytes(newest.read_bytes()[: newest.stat().st_size * 9 // 10])
    assert primary.run("restore.sh", BACKUPS=str(backups), BACKUP_FILE=str(broken)).returncode != 0
    connection = await primary.connect()
    assert await connection.fetchval("SELECT count(*) FROM pgmq.q_gpu_jobs") == 2
    await closed(primary, connection)

    restored = primary.run("restore.sh", BACKUPS=str(backups))
    assert restored.returncode == 0, restored.stderr
    connection = await primary.connect()
    assert [row["message"] for row in await connection.fetch("SELECT message FROM pgmq.q_gpu_jobs")] == ['{"kept": 1}']
    assert await connection.fetchval("SELECT to_regclass('made_since')") is None
    assert not (await status(sqlalchemy_url(primary))).pending
    await connection.close()


async def test_an_empty_volume_becomes_an_empty_database_only_where_it_all_begins(pods: Callable[[str], Pod]) -> None:
    replica = pods("postgres-replica")
    replica.start(FAILED_OVER, replica)
    assert replica.exited() == 1
    assert "there is no data here" in replica.log
    assert not replica.data.exists()


async def test_a_primary_that_lost_its_volume_makes_no_empty_database_beside_the_replicas(
    pods: Callable[[str], Pod],
) -> None:
    primary, replica = pods("postgres-primary"), pods("postgres-replica")
    # Both at once, from nothing: each asks for the other.
    primary.start(SMALL, primary, replica)
    replica.start(SMALL, primary)
    connection = await primary.connect()
    await streams(primary, replica)
    await connection.execute("CREATE TABLE kept (id int)")
    primary.end(signal.SIGKILL)
    primary.lose_volume()

    primary.start(SMALL, primary, replica)
    assert primary.exited() == 1
    assert "the replica has data" in primary.log
    assert "set postgres.primaryIs=postgres-replica" in primary.log
    assert not [*primary.data.parent.iterdir()]

    # What the log says brings all of it back.
    replica.end()
    replica.start(FAILED_OVER, replica)
    after = await replica.connect()
    assert await after.fetchval("SELECT to_regclass('kept')") == "kept"
    await after.close()


async def test_a_replica_that_is_away_keeps_nobody_from_beginning(pods: Callable[[str], Pod]) -> None:
    primary, replica = pods("postgres-primary"), pods("postgres-replica")
    primary.start(SMALL, primary, replica)
    await (await primary.connect()).close()


@pytest.mark.parametrize("how", ["the release had a database", "told never to", "data moved aside"])
async def test_an_empty_volume_stays_empty_where_a_database_is_known_until_told_otherwise(
    pods: Callable[[str], Pod], how: str
) -> None:
    alone = {"postgres": {**SMALL["postgres"], "replica": {"enabled": False}}}
    primary = pods("postgres-primary")
    match how:
        case "the release had a database":
            # What an upgrade writes once it has seen one of the two ready.
            primary.start(alone, primary, begun="yes")
        case "told never to":
            primary.start({"postgres": {**alone["postgres"], "begin": "never"}}, primary)
        case _:
            primary.data.with_name("pgdata.was-primary-20260101T000000Z").mkdir()
            primary.start(alone, primary)
    assert primary.exited() == 1
    assert "set postgres.begin=anew" in primary.log
    assert not primary.data.exists()
    primary.start({"postgres": {**alone["postgres"], "begin": "anew"}}, primary)
    await (await primary.connect()).close()


async def test_a_changed_password_counts_from_the_next_start(pods: Callable[[str], Pod]) -> None:
    values = {"postgres": {**SMALL["postgres"], "replica": {"enabled": False}}}
    primary = pods("postgres-primary")
    primary.start(values, primary)
    await (await primary.connect()).close()
    primary.end()
    (primary.data.parents[1] / "secrets" / "password").write_text("another")
    primary.start(values, primary)
    await (await primary.connect("another")).close()
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(**primary.url)

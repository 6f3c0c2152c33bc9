"""Up, down and up again, with data; both ways PGMQ comes in; and errors that say what to do."""

import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from pgmq.install import get_embedded_install_sql
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from reservation_core.adapters.postgres.connection import migrating
from tests.integration.reservation_core.adapters.postgres.conftest import Seed

QUEUES = [
    "gpu_jobs", "gpu_jobs_dlq", "notifications", "notifications_dlq", "pod_operations", "pod_operations_dlq"
]  # fmt: skip


def pool(url: str) -> AsyncEngine:
    return create_async_engine(url, poolclass=NullPool)


async def answer(url: str, sql: str):
    async with pool(url).begin() as connection:
        return (await connection.exec_driver_sql(sql)).scalar()


async def script(url: str, sql: str) -> None:
    async with pool(url).connect() as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        raw = await connection.get_raw_connection()
        await raw.driver_connection.execute(sql)


async def leftovers(url: str) -> list[str]:
    """Our objects that are still there: relations, functions, schemas, apart from Alembic's own table."""
    async with pool(url).begin() as connection:
        found = await connection.execute(
            text(
                "SELECT relname FROM pg_class WHERE relnamespace IN (SELECT oid FROM pg_namespace "
                "WHERE nspname IN ('public', 'pgmq')) AND relname NOT LIKE 'alembic_version%' UNION ALL "
                "SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace "
                "WHERE n.nspname IN ('public', 'pgmq') AND NOT EXISTS (SELECT FROM pg_depend d "
                "WHERE d.objid = p.oid AND d.deptype = 'e') UNION ALL "
                "SELECT nspname FROM pg_namespace WHERE nspname = 'pgmq'"
            )
        )
        return sorted(found.scalars())


async def fill(url: str) -> None:
    """At least one row in every table and a message in a queue."""
    seed = Seed(pool(url))
    user = await seed.user()
    card, _ = await seed.node()
    await seed.job("job-a", user, "starting", attempt=1)
    await seed.job("job-b", user)
    await seed.allocate("job-a", card)
    await seed.run("INSERT INTO events (reservation_id, at, actor, kind) VALUES ('job-a', now(), 'ada', 'submitted')")
    await seed.run(
        "INSERT INTO wait_estimates (reservation_id, position, reason_code, reason, planned_at) "
        "VALUES ('job-b', 1, 'waiting_for_gpus', 'Waits.', now())"
    )
    await seed.run(
        "INSERT INTO tokens (id, user_id, digest, created_at) VALUES ('tok-a', :user, sha256('x'), now())", user=user
    )
    await seed.run(
        "INSERT INTO idempotency_keys (user_id, key, request_hash, created_at) "
        "VALUES (:user, 'k', sha256('x'), now())", user=user
    )  # fmt: skip
    await seed.run("UPDATE nodes SET zone = 'eu-1', taints = '{x=y:NoSchedule}', fenced_at = now(), fenced_by = 'root'")
    await seed.run(
        "INSERT INTO unknown_pods (name, reservation_id, node, gpu_indices, detail, first_seen_at) "
        "VALUES ('job-x-1-0', 'job-x', 'node-a', '{0}', 'Who knows.', now())"
    )
    await seed.run(
        "INSERT INTO notice_targets (id, user_id, channel, address, secret, created_at, verified_at) "
        "VALUES ('ntg-a', :user, 'webhook', 'https://a.example/', 'x-x-x-x-x-x-x-x-x', now(), now())", user=user
    )  # fmt: skip
    await seed.run(
        "INSERT INTO notice_preferences (user_id, kind, channel, wanted) VALUES (:user, 'ended', 'slack', false)",
        user=user,
    )
    await fill_calendar(seed, user, await seed.node("node-b"))
    for queue in QUEUES:
        await seed.run("SELECT pgmq.send(CAST(:queue AS text), CAST('{}' AS jsonb))", queue=queue)


async def fill_calendar(seed: Seed, user: int, cards: list[int]) -> None:
    """A booking of a series in its slot with a job that runs in it and one that waits, a window, rules and shares."""
    await seed.run("INSERT INTO booking_series VALUES ('ser-a', :user, 'FREQ=DAILY;COUNT=1', 'UTC', now())", user=user)
    await seed.run("INSERT INTO projects (name, created_at) VALUES ('vision', now())")
    for kind, name, status, card in (("booking", "bkg-a", "active", 0), ("maintenance", "mnt-a", "active", 1)):
        await seed.run(
            "INSERT INTO reservations (id, kind, user_id, status, reason_code, reason, gpus, nodes, duration, "
            "priority, workload, created_at, changed_at, project) VALUES (:id, :kind, :user, :status, 'booked', "
            "'Booked.', 1, 1, interval '2 hours', 0, '{}', now(), now(), 'vision')",
            id=name, kind=kind, user=user, status=status
        )  # fmt: skip
        await seed.run(
            "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at) VALUES (:id, 0, "
            ":card, 0, tstzrange(now(), now() + interval '2 hours'), false, now())", id=name, card=cards[card]
        )  # fmt: skip
        await seed.run(
            "INSERT INTO events (reservation_id, at, actor, kind) VALUES (:id, now(), 'ada', 'made')", id=name
        )
    await seed.job("job-c", user, "starting", attempt=1, project="vision")
    await seed.job("job-d", user, project="vision")
    await seed.run("UPDATE reservations SET booking_id = 'bkg-a' WHERE id IN ('job-c', 'job-d')")
    await seed.run(
        "INSERT INTO bookings (id, starts_at, ends_at, series_id, occurrence, started_job) VALUES ('bkg-a', "
        "date_trunc('minute', now()), date_trunc('minute', now()) + interval '2 hours', 'ser-a', 0, 'job-c')"
    )
    for job, first, held in (("job-c", 0, True), ("job-d", 60, False)):
        await seed.run(
            "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, planned, booking_id, "
            "created_at) SELECT :job, 1, gpu_id, 0, tstzrange(lower(during) + make_interval(mins => :first), "
            "lower(during) + make_interval(mins => :first + 60)), :held, NOT :held, 'bkg-a', now() "
            "FROM allocations WHERE reservation_id = 'bkg-a'", job=job, first=first, held=held
        )  # fmt: skip
    await seed.run("UPDATE reservations SET reason_code = 'workload_refused' WHERE id = 'bkg-a'")
    await seed.run("INSERT INTO admissions VALUES ('bkg-a', 'u-1', 'lab', 'train-0', 1, now(), NULL, now())")
    await seed.run("INSERT INTO start_promises VALUES ('job-d', now(), now())")
    await seed.run("INSERT INTO calendar_feeds VALUES (:user, sha256('f'), now())", user=user)
    await seed.run(
        "INSERT INTO maintenance_windows "
        "SELECT 'mnt-a', :cards, now(), now() + interval '2 hours', 'Fans.', "
        "jsonb_agg(jsonb_build_object('fate', fate)) "
        "FROM unnest(ARRAY['ended', 'goes_on', 'begins_later', 'cancelled']) AS f (fate)",
        cards=cards[1:],
    )
    await seed.run("INSERT INTO policies (max_gpus, changed_at, changed_by) VALUES (4, now(), 'ada')")
    await seed.run("INSERT INTO project_members VALUES ('vision', :user)", user=user)
    await seed.run("INSERT INTO fair_shares VALUES (:user, 1)", user=user)
    await seed.user("checker", "service")


async def test_up_down_up_with_data(empty_database_url) -> None:
    url = empty_database_url
    before = await migrating.status(url)
    assert (before.current, before.pending) == (None, migrating.revisions())
    await migrating.upgrade(url)
    for _ in range(2):
        assert (await migrating.status(url)).current == migrating.revisions()[-1]
        await fill(url)
        await migrating.downgrade(url, "base")
        assert await leftovers(url) == []
        await migrating.upgrade(url)
    assert (await migrating.status(url)).pending == ()
    assert await answer(url, "SELECT array_agg(queue_name ORDER BY queue_name) FROM pgmq.meta") == QUEUES


async def test_what_older_programs_do_not_know_goes_with_its_migration(database_url) -> None:
    await fill(database_url)
    await migrating.downgrade(database_url, "0010_time_given_back")
    code = await answer(database_url, "SELECT reason_code FROM reservations WHERE id = 'bkg-a'")
    assert code == "in_slot"
    fates = "SELECT string_agg(a ->> 'fate', ' ') FROM maintenance_windows, jsonb_array_elements(affected) AS a"
    assert await answer(database_url, fates) == "ended ends_earlier moved cancelled"


async def test_jobs_after_the_last_array_have_numbers_of_their_own_without_arrays(database_url) -> None:
    seed = Seed(pool(database_url))
    user = await seed.user()
    await seed.job("job-a", user, array_size=2, array_parallel=2, held=True)
    await seed.run(
        """INSERT INTO reservations (id, seq, kind, user_id, status, reason_code, reason, gpus, gpu_type, nodes,
                                     duration, priority, workload, created_at, changed_at, array_size,
                                     array_id, array_index)
           OVERRIDING SYSTEM VALUE
           SELECT id || '.' || i, seq + 1 + i, kind, user_id, status, reason_code, reason, gpus, gpu_type, nodes,
                  duration, priority, workload, created_at, changed_at, array_size, id, i
           FROM reservations, generate_series(0, 1) AS i WHERE id = 'job-a'"""
    )
    await migrating.downgrade(database_url, "0048_shares")
    for number in range(3):
        await seed.job(f"job-b{number}", user)


async def test_each_revision_can_be_left_and_entered_again(database_url) -> None:
    await fill(database_url)
    for revision in reversed(migrating.revisions()):
        await migrating.downgrade(database_url, revision)
        assert (await migrating.status(database_url)).current == revision
        if revision == "0006_notifications":
            open_windows = "SELECT count(*) FROM allocations WHERE reservation_id = 'mnt-a' AND released_at IS NULL"
            assert await answer(database_url, open_windows) == 0
    await migrating.upgrade(database_url)
    assert await answer(database_url, "SELECT count(*) FROM queue_status") == 2


async def test_migrators_at_the_same_time_take_turns(empty_database_url) -> None:
    await asyncio.gather(*(migrating.upgrade(empty_database_url) for _ in range(4)))
    assert (await migrating.status(empty_database_url)).pending == ()


async def test_a_failed_migration_keeps_nothing(empty_database_url) -> None:
    await script(empty_database_url, "CREATE VIEW gpu_status AS SELECT 1 AS mine")
    with pytest.raises(migrating.MigrationError, match=r"gpu_status.*Nothing of this run was kept"):
        await migrating.upgrade(empty_database_url)
    assert await leftovers(empty_database_url) == ["gpu_status"]


def test_file_names_and_revisions_are_one_line() -> None:
    config = Config()
    config.set_main_option("script_location", str(migrating.migrations_folder()))
    config.set_main_option("recursive_version_locations", "true")
    scripts = ScriptDirectory.from_config(config)
    walked = [script.revision for script in scripts.walk_revisions()]
    assert tuple(reversed(walked)) == migrating.revisions()


async def test_whether_a_database_is_migrated_is_seen_without_alembic(database_url, empty_database_url) -> None:
    program = (
        "import asyncio, sys\n"
        "from sqlalchemy.ext.asyncio import create_async_engine\n"
        "from reservation_core.adapters.postgres.connection import migrating\n"
        "async def main(url):\n"
        "    try:\n"
        "        await migrating.require_migrated(create_async_engine(url))\n"
        "        print('migrated', end=' ')\n"
        "    except migrating.DatabaseAwayError:\n"
        "        print('waits', end=' ')\n"
        "    print('alembic' in sys.modules, 'pgmq' in sys.modules)\n"
        "asyncio.run(main(sys.argv[1]))\n"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", program, url],
            check=True,
            capture_output=True,
            text=True,
            cwd=migrating.migrations_folder().parent,
        ).stdout.split()
        for url in (database_url, empty_database_url)
    ]
    assert said == [["migrated", "False", "False"], ["waits", "False", "False"]]


async def test_a_database_of_a_newer_program_is_left_alone(database_url) -> None:
    await script(database_url, "UPDATE alembic_version SET version_num = '9999_future'")
    for act in (migrating.upgrade(database_url), migrating.status(database_url)):
        with pytest.raises(migrating.MigrationError, match="newer program"):
            await act


async def test_an_unknown_target_is_refused(database_url) -> None:
    with pytest.raises(migrating.MigrationError, match="choose one of: base, 0001_foundation"):
        await migrating.downgrade(database_url, "0815")


async def test_an_unreachable_database_is_said_without_its_password() -> None:
    with pytest.raises(migrating.MigrationError, match="can't be reached") as raised:
        await migrating.upgrade("postgresql://ada:hunter2@/db?host=/nonexistent")
    assert "hunter2" not in str(raised.value)


async def test_a_missing_database_is_said(database_url) -> None:
    missing = make_url(database_url).set(database="no_such_database").render_as_string(hide_password=False)
    with pytest.raises(migrating.MigrationError, match="no_such_database"):
        await migrating.status(missing)


# --- PGMQ that was there before, or comes from the server


async def test_a_pgmq_that_was_there_before_stays(empty_database_url) -> None:
    await script(empty_database_url, get_embedded_install_sql() + "; SELECT pgmq.create('theirs');")
    await migrating.upgrade(empty_database_url)
    assert await answer(empty_database_url, "SELECT origin FROM pgmq_origin") == "found"
    await migrating.downgrade(empty_database_url, "base")
    assert await answer(empty_database_url, "SELECT array_agg(queue_name) FROM pgmq.meta") == ["theirs"]
    await migrating.upgrade(empty_database_url)


async def test_a_queue_of_others_keeps_pgmq_that_we_installed(database_url) -> None:
    assert await answer(database_url, "SELECT origin FROM pgmq_origin") == "sql"
    await script(database_url, "SELECT pgmq.create('theirs')")
    await migrating.downgrade(database_url, "base")
    assert await answer(database_url, "SELECT array_agg(queue_name) FROM pgmq.meta") == ["theirs"]


async def test_a_pgmq_that_is_too_old_is_refused(empty_database_url) -> None:
    old = "CREATE SCHEMA pgmq; CREATE FUNCTION pgmq.create(text) RETURNS void LANGUAGE sql AS ''"
    await script(empty_database_url, old)
    with pytest.raises(migrating.MigrationError, match=r"lacks pgmq\.send.*Update it"):
        await migrating.upgrade(empty_database_url)


@pytest.fixture
def extensions(quick_folder: Path) -> Iterator[Path]:
    """A folder that the server, whoever it runs as, can read extensions from."""
    folder = Path(tempfile.mkdtemp(dir=quick_folder))
    (folder / "extension").mkdir()
    for path in (folder, folder / "extension"):
        path.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


async def look_for_extensions_in(url: str, *folders: object) -> None:
    if int(await answer(url, "SHOW server_version_num")) < 180_000:
        pytest.skip("only PostgreSQL 18 and newer can be told where to look for extensions")
    await script(
        url,
        f'ALTER DATABASE "{make_url(url).database}" SET extension_control_path = '
        f"'{':'.join(str(folder) for folder in folders)}'",
    )


async def test_the_servers_extension_is_preferred(empty_database_url, extensions) -> None:
    (extensions / "extension" / "pgmq.control").write_text(
        "default_version = '1.13.0'\nschema = 'pgmq'\nrelocatable = false\nsuperuser = false\n"
    )
    (extensions / "extension" / "pgmq--1.13.0.sql").write_text(get_embedded_install_sql())
    await look_for_extensions_in(empty_database_url, extensions, "$system")
    for _ in range(2):
        await migrating.upgrade(empty_database_url)
        assert (
            await answer(empty_database_url, "SELECT origin || ' ' || version FROM pgmq_origin") == "extension 1.13.0"
        )
        assert await answer(empty_database_url, "SELECT count(*) FROM pg_extension WHERE extname = 'pgmq'") == 1
        await fill(empty_database_url)
        await migrating.downgrade(empty_database_url, "base")
        assert await leftovers(empty_database_url) == []
        assert await answer(empty_database_url, "SELECT count(*) FROM pg_extension WHERE extname = 'pgmq'") == 0


async def test_a_server_without_btree_gist_is_told_what_to_install(empty_database_url, extensions) -> None:
    await look_for_extensions_in(empty_database_url, extensions)
    with pytest.raises(migrating.MigrationError, match=r"btree_gist.*contrib.*migrate again"):
        await migrating.upgrade(empty_database_url)


@pytest.mark.parametrize("number", [90_624, 140_012])
def test_an_old_server_is_refused(number) -> None:
    with pytest.raises(migrating.MigrationError, match="15 or newer is needed"):
        migrating.check_server_version(number)


@pytest.mark.parametrize("number", [150_000, 180_001])
def test_a_newer_server_will_do(number) -> None:
    migrating.check_server_version(number)


async def test_a_database_lacks_something_until_the_newest_revision_and_a_newer_one_will_do(database_url) -> None:
    before, newest = migrating.revisions()[-2:]
    for revision, lacks in ((before, True), (newest, False), ("9999_of_a_newer_program", False)):
        await script(database_url, f"UPDATE alembic_version SET version_num = '{revision}'")
        with pytest.raises(migrating.DatabaseAwayError, match=before) if lacks else nullcontext():
            await migrating.require_migrated(pool(database_url))

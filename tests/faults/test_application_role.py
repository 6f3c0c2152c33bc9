"""The application works as a role that owns nothing: all of its use cases do, and nothing else does."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import asyncpg
import httpx
import pytest
from sqlalchemy import make_url

from api_service.app import create_app
from reservation_core.adapters.postgres.connection.migrating import let_work, status, upgrade
from reservation_core.domain.history.retention import RetentionRules
from reservation_core.domain.statuses import JobStatus
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.usecases.history.retention import RetentionWalk, remove_old_history
from tests.database.database_roles import owner_and_application
from tests.faults.systems.system import System
from tests.faults.test_kill_nine import assert_converges, submit_some, successor


@pytest.fixture
def roles(empty_database_url: str) -> Iterator[tuple[str, str]]:
    """An empty database's URL for its owner, who is no superuser, and for the role that the application works as."""
    with owner_and_application(empty_database_url) as urls:
        yield urls


@pytest.fixture
async def database_url(roles: tuple[str, str]) -> str:
    """The application's, once the owner has migrated."""
    owner, application = roles
    await upgrade(owner)
    await let_work(owner, make_url(application).username or "")
    assert not (await status(application)).pending
    return application


async def test_jobs_and_bookings_of_all_kinds_come_to_their_ends(system: System) -> None:
    assert await owned(system) == []
    jobs = await submit_some(system)
    async with successor(system):
        await assert_converges(system, jobs)
    tiny = RetentionRules(*[timedelta(seconds=1)] * 6)
    report = await remove_old_history(system.runtime.uow, system.runtime.cluster, tiny, RetentionWalk())
    assert report
    assert await owned(system) == []


async def test_the_api_takes_what_users_send(system: System) -> None:
    runtime = system.runtime
    secret = runtime.ids.new_secret()
    async with runtime.uow() as uow:
        await uow.identities.create_token(
            runtime.ids.new_id("tok"), system.owner.user_id, None, runtime.ids.digest(secret), None, runtime.clock.now()
        )
    app = create_app(runtime, ApiSettings(home=system.home, local_gpus=system.gpus))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app),
            base_url="http://api",
            headers={"Authorization": f"Bearer {secret}"},
        ) as client,
        system.working(),
    ):
        job = await client.post("/v1/jobs", json={"gpus": 1, "duration": 600, "workload": system.records.workload()})
        assert job.status_code == 202, job.text
        start = (runtime.clock.now() + timedelta(hours=2)).replace(minute=0, second=0, microsecond=0)
        wanted = {"gpus": 1, "start": start.isoformat(), "end": (start + timedelta(hours=1)).isoformat()}
        booking = await client.post("/v1/bookings", json=wanted)
        assert booking.status_code == 201, booking.text
        for path in ("jobs", "bookings", "gpus", "nodes", "queue", "users", "tokens", "usage", "events"):
            answer = await client.get(f"/v1/{path}")
            assert answer.status_code in (200, 404), answer.text
        assert (await client.get("/readyz")).status_code == 200
        assert (await client.delete(f"/v1/bookings/{booking.json()['id']}")).status_code < 300
        await system.reaches(job.json()["id"], JobStatus.SUCCEEDED)


NOT_ITS_TO_DO = [
    "DROP TABLE allocations",
    "ALTER TABLE allocations DROP COLUMN during",
    "ALTER TABLE allocations DISABLE TRIGGER ALL",
    "TRUNCATE reservations CASCADE",
    "TRUNCATE events",
    "CREATE TABLE ours (id int)",
    "DROP FUNCTION drop_event_partition(timestamptz)",
    "ALTER FUNCTION events_are_append_only() RENAME TO no_more",
    "UPDATE events SET actor = 'nobody'",
    "DELETE FROM events",
    "DELETE FROM events_default",
    "UPDATE alembic_version SET version_num = '0001_foundation'",
    "SELECT make_event_partition('jobs_too', 'DEFAULT')",
    "SELECT let_application_work(current_user)",
    "SELECT pgmq.create('more')",
    "SELECT pgmq.drop_queue('gpu_jobs')",
    "ALTER ROLE CURRENT_USER SUPERUSER",
]


async def test_nothing_else_is_the_applications_to_do(database_url: str) -> None:
    """None of them changes anything, so that one database serves them all."""
    connection = await connected(database_url)
    done = []
    try:
        for statement in NOT_ITS_TO_DO:
            try:
                await connection.execute(statement)
            except asyncpg.InsufficientPrivilegeError:
                continue
            done.append(statement)
    finally:
        await connection.close()
    assert done == []


async def test_partitions_of_the_audit_log_come_and_go_by_the_owners_functions(
    roles: tuple[str, str], database_url: str
) -> None:
    owner, connection = await connected(roles[0]), await connected(database_url)
    partitions = "SELECT name FROM event_partitions ORDER BY ends_at"
    try:
        (*_, last) = [row["name"] for row in await owner.fetch(partitions + " NULLS FIRST")]
        # As if a month had gone by since the migration.
        await owner.execute(f"DROP TABLE {last}")
        await owner.execute(
            "SELECT make_event_partition('events_old', 'FOR VALUES FROM (MINVALUE) TO (''2020-01-01 00:00+00'')')"
        )
        assert await connection.fetchval("SELECT make_event_partitions(3)") == 1
        assert await connection.fetchval("SELECT drop_event_partition(now())") == 0
        names = [row["name"] for row in await connection.fetch(partitions)]
        assert last in names
        assert "events_old" not in names
        for name in (last, "events_default"):
            assert await connection.fetchval(f"SELECT count(*) FROM {name}") == 0
    finally:
        await owner.close()
        await connection.close()


async def test_the_audit_log_is_dropped_by_whole_months_that_are_over(database_url: str) -> None:
    connection = await connected(database_url)
    try:
        names = await connection.fetch("SELECT name FROM event_partitions")
        for statement in (
            "SELECT drop_event_partition(now() + interval '40 days')",
            "SELECT make_event_partitions(100)",
        ):
            with pytest.raises(asyncpg.InvalidParameterValueError):
                await connection.execute(statement)
        # Names that are put before the owner's are not what its functions work with.
        await connection.execute(
            "CREATE TEMPORARY VIEW event_partitions AS SELECT CAST(NULL AS oid) AS oid, 'allocations' AS name,"
            " now() - interval '1 year' AS ends_at"
        )
        await connection.execute("SET search_path = pg_temp, public")
        assert await connection.fetchval("SELECT drop_event_partition(now())") is None
        assert await connection.fetchval("SELECT to_regclass('public.allocations')") is not None
        assert await connection.fetch("SELECT name FROM public.event_partitions") == names
    finally:
        await connection.close()


async def connected(url: str) -> asyncpg.Connection:
    return await asyncpg.connect(make_url(url).set(drivername="postgresql").render_as_string(hide_password=False))


async def owned(system: System) -> list[Any]:
    """What belongs to the role that the application works as."""
    return await system.rows(
        "SELECT c.relname FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner WHERE r.rolname = current_user"
    )

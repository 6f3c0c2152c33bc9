"""The chart gpu-dev-server's database: connections are encrypted, and the application owns nothing; a release of before
changes over to both without locking its application out.
"""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import make_url

from tests.chart.dev_server.database_pods import (
    LONG_S,
    OWNER,
    PASSWORD,
    SMALL,
    Pod,
    certificates,
    database_pods,
    programs_with_tls,
    streams,
)
from tests.chart.rendering import render

pytestmark = pytest.mark.timeout(600)

ENCRYPTED: dict[str, Any] = {"postgres": {"configuration": SMALL["postgres"]["configuration"]}}
FAILED_OVER: dict[str, Any] = {"postgres": {**ENCRYPTED["postgres"], "primaryIs": "postgres-replica"}}


@pytest.fixture
async def pods(quick_folder: Path) -> AsyncIterator[Callable[[str], Pod]]:
    programs = programs_with_tls()
    if programs is None:
        pytest.skip("no PostgreSQL with TLS: install Debian's package postgresql")
    with database_pods(quick_folder / "chart-tls", programs) as make:
        yield make


def migrate(
    values: dict[str, Any], pod: Pod, files: Path, *, upgrade: bool = False
) -> subprocess.CompletedProcess[str]:
    """What the migration's container does with the environment that it is given, where `files` is its volume."""
    documents = render("gpu-dev-server", values, name="gpu-dev", namespace="default", upgrade=upgrade)
    (job,) = [document for document in documents if document["kind"] == "Job"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    url = make_url(environment["GPU_DEV_DATABASE_URL"]).set(host="127.0.0.1", port=pod.port)
    (files / "gpu_dev_database_password").write_text(OWNER if url.username == "gpudev_owner" else PASSWORD)
    command = [argument for argument in container["command"][1:] if not argument.startswith(("--patience", "--admin"))]
    environment["GPU_DEV_DATABASE_URL"] = url.render_as_string(hide_password=False)
    for name in ("GPU_DEV_SECRETS_DIR", "PGSSLROOTCERT"):
        if name in environment:
            environment[name] = environment[name].replace("/secrets/settings", str(files))
    assert not any(PASSWORD in value for value in environment.values())
    return subprocess.run(
        [sys.executable, *command],
        check=False, capture_output=True, text=True, timeout=LONG_S, env={"PATH": os.environ["PATH"], **environment},
    )  # fmt: skip


async def encrypted(pod: Pod) -> dict[str, bool]:
    """By role, whether all of its connections are."""
    connection = await asyncpg.connect(host=str(pod.socket), port=pod.port, user="postgres", database="postgres")
    try:
        rows = await connection.fetch(
            "SELECT usename, bool_and(ssl) AS ssl FROM pg_stat_activity JOIN pg_stat_ssl USING (pid)"
            " WHERE usename <> 'postgres' GROUP BY 1"
        )
    finally:
        await connection.close()
    return {row["usename"]: row["ssl"] for row in rows}


async def owned(connection: asyncpg.Connection) -> int:
    """How much belongs to the role of a connection."""
    mine = "SELECT oid FROM pg_roles WHERE rolname = current_user"
    count: int = await connection.fetchval(
        f"SELECT (SELECT count(*) FROM pg_class WHERE relowner = ({mine}))"
        f" + (SELECT count(*) FROM pg_proc WHERE proowner = ({mine}))"
        f" + (SELECT count(*) FROM pg_database WHERE datdba = ({mine}))"
    )
    return count


async def works(connection: asyncpg.Connection) -> None:
    """What the application does, it may do."""
    sent = await connection.fetchval("SELECT pgmq.send('gpu_jobs', '{}'::jsonb)")
    assert await connection.fetchval("SELECT pgmq.delete('gpu_jobs', $1::bigint)", sent)
    assert await connection.fetchval("SELECT make_event_partitions(3)") == 0


async def test_everybody_who_talks_to_the_servers_does_so_over_tls(pods: Callable[[str], Pod], tmp_path: Path) -> None:
    files = tmp_path
    primary, replica = pods("postgres-primary"), pods("postgres-replica")
    primary.start(ENCRYPTED, primary, replica)
    replica.start(ENCRYPTED, primary)
    connection = await primary.connect()
    await streams(primary, replica)
    assert await encrypted(primary) == {"gpudev": True, "replicator": True}
    for pod in (primary, replica):
        with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError, match="no encryption"):
            await asyncpg.connect(**pod.url, ssl=False)

    # A server with another authority's certificate is none of ours.
    (files / "database-ca.crt").write_text(certificates()["ca.crt"])
    refused = migrate(ENCRYPTED, primary, files)
    assert refused.returncode == 1
    assert "can't be reached" in refused.stderr
    (files / "database-ca.crt").write_text((primary.data.parents[1] / "secrets" / "ca.crt").read_text())
    done = migrate(ENCRYPTED, primary, files)
    assert done.returncode == 0, done.stderr

    made = replica.run("backup.sh", BACKUPS=str(replica.data.parent), KEEP="2")
    assert made.returncode == 0, made.stderr
    assert await owned(connection) == 0
    await connection.close()
    restored = primary.run("restore.sh", BACKUPS=str(replica.data.parent))
    assert restored.returncode == 0, restored.stderr
    connection = await primary.connect()
    assert await owned(connection) == 0
    await works(connection)
    await connection.close()

    # After a failover the roles are the other way round.
    primary.end()
    replica.end()
    replica.start(FAILED_OVER, replica, primary)
    await replica.connect()
    primary.start(FAILED_OVER, replica)
    await streams(replica, primary)
    assert await encrypted(replica) == {"gpudev": True, "replicator": True}


async def test_a_release_without_tls_changes_over_and_locks_nobody_out(
    pods: Callable[[str], Pod], tmp_path: Path
) -> None:
    files = tmp_path
    primary, replica = pods("postgres-primary"), pods("postgres-replica")
    primary.start(SMALL, primary, replica)
    replica.start(SMALL, primary)
    await (await primary.connect()).close()
    await streams(primary, replica)
    # First the migration, which has no certificate yet, of a server that has none either.
    done = migrate(ENCRYPTED, primary, files, upgrade=True)
    assert done.returncode == 0, done.stderr
    # The worst order: the replica asks for TLS before the primary has it.
    replica.end()
    replica.start(ENCRYPTED, primary)
    primary.end()
    primary.start(ENCRYPTED, primary, replica)
    # A program of the version before, which was never told of TLS.
    before = await primary.connect()
    await streams(primary, replica)
    assert (await encrypted(primary))["gpudev"]
    # It owned all of it, and now it may work with all of it.
    assert await owned(before) == 0
    await works(before)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await before.execute("DROP TABLE events")
    (files / "database-ca.crt").write_text((primary.data.parents[1] / "secrets" / "ca.crt").read_text())
    done = migrate(ENCRYPTED, primary, files)
    assert done.returncode == 0, done.stderr
    await works(before)
    # And back, as `helm rollback` does.
    for pod in (replica, primary):
        pod.end()
        pod.start(SMALL, primary, replica)
    after = await primary.connect()
    await streams(primary, replica)
    await works(after)
    await after.close()

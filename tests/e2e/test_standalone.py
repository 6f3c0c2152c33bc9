"""The whole system in one process: it starts, does its work, ends in order, and is never half alive."""

import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import psycopg
import pytest

from reservation_core.adapters.postgres.embedded.server import EmbeddedPostgres
from tests.e2e.systems.prepared_home import PreparedHome, prepared_home
from tests.e2e.systems.system_process import ROOT, SystemProcess, ended
from tests.programs.prepared_processes import started
from tests.waiting import PATIENCE_S, eventually_sync


@pytest.fixture
def first_start(tmp_path: Path) -> Iterator[SystemProcess]:
    """A system that has not been started yet, as a person starts it in an empty home."""
    system = SystemProcess(tmp_path / "a home")
    yield system
    system.clear()


@pytest.fixture(scope="module")
def prepared(quick_folder: Path) -> Iterator[PreparedHome]:
    """What a first start leaves, made once."""
    with prepared_home(quick_folder) as made:
        yield made


@pytest.fixture
def system(prepared: PreparedHome, tmp_path: Path) -> Iterator[SystemProcess]:
    """A system whose database is there, not started yet; it is forked."""
    system = SystemProcess(tmp_path / "a home", forked=True)
    prepared.copy_to(system.home)
    yield system
    system.clear()


def test_jobs_without_gpus_run_without_any_setting(system: SystemProcess) -> None:
    with system.start() as http:
        job = system.submit(http, 0, "sh", "-c", 'echo "none: $CUDA_VISIBLE_DEVICES"')
        assert ended(http, job)["status"] == "succeeded"
        assert http.get(f"/v1/jobs/{job}/logs").text == "none: \n"


def test_a_job_goes_all_the_way_and_nothing_is_left_after_sigterm(first_start: SystemProcess) -> None:
    system = first_start
    with system.start() as http:
        assert http.get("/readyz").status_code == 200
        assert stat.S_IMODE((system.home / "admin-token").stat().st_mode) == 0o600
        job = system.submit(http, 2, "sh", "-c", 'echo "mine: $CUDA_VISIBLE_DEVICES"')
        assert ended(http, job)["status"] == "succeeded"
        assert http.get(f"/v1/jobs/{job}/logs").text == "mine: 0,1\n"
    first_token = system.token
    assert system.end(signal.SIGTERM) == 0, system.log
    assert EmbeddedPostgres(system.home).pid is None
    assert not system.job_processes()

    with system.start() as http:
        assert system.token == first_token, "a valid token is left alone"
        assert http.get(f"/v1/jobs/{job}").json()["status"] == "succeeded"
    assert system.end(signal.SIGINT) == 0, system.log


def test_a_token_that_is_no_longer_valid_is_replaced(system: SystemProcess) -> None:
    with system.start() as http:
        [token] = http.get("/v1/tokens").json()["items"]
        assert http.delete(f"/v1/tokens/{token['id']}").is_success
    first_token = system.token
    assert system.end(signal.SIGTERM) == 0
    with system.start() as http:
        assert system.token != first_token
        assert http.get("/v1/users/me").json()["role"] == "admin"


def test_running_jobs_survive_kill_9_of_the_system_and_are_taken_up_again(system: SystemProcess) -> None:
    gate = system.home.parent / "gate"
    with system.start() as http:
        job = system.submit(http, 4, "sh", "-c", f'until [ -e "{gate}" ]; do sleep 0.1; done; exit 3')
        eventually_sync(lambda: http.get(f"/v1/jobs/{job}").json()["status"] == "running")
    system.end(signal.SIGKILL)
    assert system.job_processes()

    with system.start() as http:
        assert http.get(f"/v1/jobs/{job}").json()["status"] == "running"
        gate.touch()
        found = ended(http, job)
        assert (found["status"], found["exit_code"]) == ("failed", 3)
        states = {gpu["state"] for gpu in http.get("/v1/gpus").json()["items"]}
        assert states == {"free"}


def test_whatever_happens_to_the_database_the_system_goes_on_and_runs_the_next_job(system: SystemProcess) -> None:
    gate = system.home.parent / "gate"
    with system.start() as http:
        lasting = system.submit(http, 1, "sh", "-c", f'until [ -e "{gate}" ]; do sleep 0.1; done; exit 3')
        eventually_sync(lambda: http.get(f"/v1/jobs/{lasting}").json()["status"] == "running")
        server = EmbeddedPostgres(system.home)
        with psycopg.connect(server.libpq_url, autocommit=True) as database:
            # As a managed server does when its disk is full.
            database.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            database.execute("SELECT pg_reload_conf()")
            job = {"gpus": 1, "duration": 300, "workload": {"command": ["true"]}}
            eventually_sync(lambda: http.post("/v1/jobs", json=job).status_code == 503)
            eventually_sync(
                lambda: system.log.count("a step is postponed; trying again") >= 3
            )  # its loops have met it, too
            database.execute("SET default_transaction_read_only = off")
            database.execute("ALTER SYSTEM RESET default_transaction_read_only")
            database.execute("SELECT pg_reload_conf()")
            works(system, http)

            for ending in ("pg_cancel_backend", "pg_terminate_backend"):
                others = "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = 'gpu_dev'"
                for _ in range(20):
                    database.execute(f"SELECT {ending}(pid) FROM ({others}) AS others".encode())
                works(system, http)

        first = server.pid
        assert first is not None
        for process in [*psutil.Process(first).children(), psutil.Process(first)]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        eventually_sync(lambda: server.pid not in (None, first))
        works(system, http)
        assert http.get(f"/v1/jobs/{lasting}").json()["status"] == "running"
        gate.touch()
        assert ended(http, lasting)["exit_code"] == 3
        eventually_sync(lambda: http.get("/readyz").status_code == 200)
    assert system.process.poll() is None
    assert system.end(signal.SIGTERM) == 0, system.log
    assert server.pid is None
    assert "unforeseen_error" not in system.log


def works(system: SystemProcess, http: httpx.Client) -> None:
    """A job that is submitted now runs; until the server takes one it says 503 and nothing else."""

    def taken() -> str | None:
        job = {"gpus": 1, "duration": 300, "workload": {"command": ["true"]}}
        answer = http.post("/v1/jobs", json=job)
        assert answer.status_code in (202, 503), answer.text
        return answer.json()["id"] if answer.status_code == 202 else None

    job = eventually_sync(taken)
    assert job is not None

    def done() -> bool:
        answer = http.get(f"/v1/jobs/{job}")
        assert answer.status_code in (200, 503), answer.text
        return answer.status_code == 200 and answer.json()["status"] == "succeeded"

    system.jobs.append(job)
    eventually_sync(done)


def test_a_database_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    system = SystemProcess(tmp_path / "home", forked=True, GPU_DEV_DATABASE_URL="postgresql://me@127.0.0.1:1/none")
    try:
        system.launch()
        eventually_sync(lambda: "waiting to start" in system.log)
        assert system.process.poll() is None
        assert system.end(signal.SIGTERM) == 0, system.log
        assert "Traceback" not in system.log
    finally:
        system.clear()


def test_a_second_signal_ends_it_at_once(system: SystemProcess) -> None:
    system.start().close()
    # A database server that is stopped can't be shut down in order: that would take a minute.
    pid = EmbeddedPostgres(system.home).pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        system.process.send_signal(signal.SIGINT)
        eventually_sync(lambda: "shutting down" in system.log.lower() or _asked_to_stop(system))
        assert system.end(signal.SIGINT) == 128 + signal.SIGINT
    finally:
        os.kill(pid, signal.SIGCONT)


def _asked_to_stop(system: SystemProcess) -> bool:
    """It takes no connections any more."""
    try:
        return httpx.get(f"{system.url}/healthz", trust_env=False, timeout=PATIENCE_S).status_code != 200
    except httpx.TransportError:
        return True


def test_a_second_system_in_the_same_home_is_refused_and_told_who_is_there(system: SystemProcess) -> None:
    system.start().close()
    second = SystemProcess(system.home, forked=True)
    second.launch()
    assert second.wait() == 1
    assert f"is in use by the process with pid {system.process.pid}" in system.log
    assert system.process.poll() is None


def test_an_address_in_use_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        system = SystemProcess(tmp_path / "home", forked=True, GPU_DEV_LISTEN=f"127.0.0.1:{taken.getsockname()[1]}")
        try:
            system.launch()
            assert system.wait() == 2
            assert "GPU_DEV_LISTEN" in system.log
            assert not system.home.exists(), "nothing is made for it"
        finally:
            system.clear()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("GPU_DEV_LOCAL_GPUS", "h100:x", "'h100:x' has no count of GPUs"),
        ("GPU_DEV_POLICY_FILE", "[default]\nmax_gpu = 4", "default.max_gpu: unknown; the fields are max_gpus"),
        ("GPU_DEV_AUTH__FILE", "[oidc.lab]\nuser = 'x'", "oidc: must be a list."),
    ],
)
def test_a_setting_that_can_not_be_used_is_said_before_anything_is_made(
    tmp_path: Path, name: str, value: str, said: str
) -> None:
    if name.endswith("FILE"):
        (tmp_path / "file.toml").write_text(value)
        value = str(tmp_path / "file.toml")
    system = SystemProcess(tmp_path / "home", forked=True, **{name: value})
    try:
        system.launch()
        assert (system.wait(), said in system.log, system.home.exists()) == (2, True, False), system.log
    finally:
        system.clear()


def test_a_home_that_can_not_be_used_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environment = {**os.environ, "GPU_DEV_HOME": str(tmp_path / "file" / "home"), "GPU_DEV_LISTEN": "127.0.0.1:0"}
    for words in (["standalone"], ["standalone", "psql", "-l"], ["reservation_core.runtime.database", "status"]):
        log = tmp_path / f"{words[-1]}.log"
        assert started(words, environment, log, forked=True).wait(PATIENCE_S) == 1, words
        assert log.read_text().count("\n") == 1, log.read_text()
        assert "of GPU_DEV_HOME can't be used: Not a directory. Name a folder" in log.read_text()


def test_where_no_server_was_started_an_operator_is_told_and_no_database_is_made(tmp_path: Path) -> None:
    home = tmp_path / "home"
    environment = {**os.environ, "GPU_DEV_HOME": str(home)}
    for words in (["standalone", "psql", "-l"], ["reservation_core.runtime.database", "status"]):
        log = tmp_path / f"{words[-1]}.log"
        assert started(words, environment, log, forked=True).wait(PATIENCE_S) == 1, words
        assert log.read_text().startswith(f"There is no database in {home}. Run this in the server's folder")
        assert not home.exists()


def test_psql_opens_on_the_database_whether_the_system_is_up_or_not(system: SystemProcess) -> None:
    def psql() -> str:
        command = [sys.executable, "-m", "standalone", "psql", "-Atc", "SELECT count(*) FROM gpu_status"]
        environment = {**os.environ, "GPU_DEV_HOME": str(system.home)}
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout

    system.start().close()
    assert psql() == "4\n"
    assert system.end(signal.SIGTERM) == 0
    assert psql() == "4\n"
    assert EmbeddedPostgres(system.home).pid is None

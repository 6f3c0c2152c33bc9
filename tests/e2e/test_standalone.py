"""The whole system in one process: it starts, does its work, ends in order, and is never half alive."""

import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reservation_core.adapters.postgres.embedded.server import EmbeddedPostgres
from tests.e2e.system_process import ROOT, SystemProcess, ended
from tests.waiting import eventually_sync


@pytest.fixture
def system(tmp_path: Path) -> Iterator[SystemProcess]:
    """A system that has not been started yet."""
    system = SystemProcess(tmp_path / "a home")
    yield system
    system.clear()


def test_a_job_goes_all_the_way_and_nothing_is_left_after_sigterm(system: SystemProcess) -> None:
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


def test_when_the_database_server_dies_the_system_ends_with_an_error(system: SystemProcess) -> None:
    system.start().close()
    pid = EmbeddedPostgres(system.home).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert system.wait() == 1
    assert system.log.splitlines()[-1].startswith("standalone: The database server ended by itself;")


def test_a_second_system_in_the_same_home_is_refused_and_told_who_is_there(system: SystemProcess) -> None:
    system.start().close()
    second = SystemProcess(system.home)
    second.launch()
    assert second.wait() == 1
    assert f"is in use by the process with pid {system.process.pid}" in system.log
    assert system.process.poll() is None


def test_an_address_in_use_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        system = SystemProcess(tmp_path / "home", GPU_DEV_LISTEN=f"127.0.0.1:{taken.getsockname()[1]}")
        try:
            system.launch()
            assert system.wait() == 2
            assert "GPU_DEV_LISTEN" in system.log
            assert EmbeddedPostgres(system.home).pid is None
        finally:
            system.clear()


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


def test_the_demo_shows_the_gpus_from_the_workloads_own_output() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GPU_DEV_")}
    environment["GPU_DEV_LOCAL_GPUS"] = "h100:4"
    command = [sys.executable, "-m", "standalone.demo"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SIMULATED" in done.stdout
    assert "| CUDA_VISIBLE_DEVICES=0,1" in done.stdout
    assert "place 1 in line" in done.stdout

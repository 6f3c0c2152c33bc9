"""`gpu-dev exec`: streams and exit codes as if the command ran here."""

import hashlib
import subprocess
import sys
from http import HTTPStatus
from pathlib import Path

import psutil
import pytest

from tests.integration.gpu_dev.sessions.conftest import Person
from tests.sessions.sessions_server import JOB, SessionsServer, problem
from tests.waiting import PATIENCE_S, eventually_sync


def test_outputs_stay_apart_and_the_exit_code_is_the_commands(ann: Person) -> None:
    done = ann.run("exec", JOB, "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"out\n", b"err\n")


def test_stdin_is_passed_on_to_its_end_byte_by_byte(ann: Person) -> None:
    everything = bytes(range(256)) * 4096
    done = ann.run("exec", JOB, "--", "cat", stdin=everything)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == everything


def test_a_name_stands_for_a_job(ann: Person, server: SessionsServer) -> None:
    server.job["name"] = "notebook"
    done = ann.run("exec", "notebook", "true")
    assert done.returncode == 0
    assert server.asked == [f"/v1/jobs/{JOB}/exec?command=true&rank=0"]


def test_a_command_that_is_not_there(ann: Person) -> None:
    done = ann.run("exec", JOB, "--", "nothing-of-this-name")
    assert done.returncode == 127
    assert b"nothing-of-this-name" in done.stderr


@pytest.mark.parametrize(("number", "code"), [("TERM", 143), ("KILL", 137)])
def test_a_command_that_a_signal_ends(ann: Person, number: str, code: int) -> None:
    assert ann.run("exec", JOB, "--", "sh", "-c", f"kill -{number} $$").returncode == code


def test_a_refusal_is_said_as_all_others(ann: Person, server: SessionsServer) -> None:
    server.refusals[f"/v1/jobs/{JOB}/exec"] = problem(HTTPStatus.CONFLICT, f"{JOB} has not started yet.")
    done = ann.run("exec", JOB, "--", "true")
    assert (done.returncode, done.stderr.decode()) == (4, f"error: {JOB} has not started yet.\n")


def test_a_wrong_token(ann: Person) -> None:
    assert ann.run("exec", JOB, "--", "true", more={"GPU_DEV_TOKEN": "wrong"}).returncode == 6


def test_a_connection_that_breaks_is_said(ann: Person, server: SessionsServer) -> None:
    running = ann.begin("exec", JOB, "--", "sh", "-c", "echo up; exec sleep 600")
    assert running.stdout is not None
    assert running.stdout.readline() == b"up\n"
    server.go_down()
    _, said = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 5
    assert b"The connection to job-7f3k9q2m broke" in said


def test_a_server_that_ends_it_for_a_reason(ann: Person, server: SessionsServer) -> None:
    running = ann.begin("exec", JOB, "--", "sh", "-c", "echo up; exec sleep 600")
    assert running.stdout is not None
    assert running.stdout.readline() == b"up\n"
    server.close_all(1008, "the token was revoked")
    assert b"the token was revoked" in running.communicate(timeout=PATIENCE_S)[1]


def test_sigterm_hangs_the_command_up(ann: Person, tmp_path: Path) -> None:
    script = f"trap 'touch {tmp_path}/hung-up; exit' HUP; echo up; while :; do sleep 0.05; done"
    running = ann.begin("exec", JOB, "--", "sh", "-c", script, stdin=subprocess.PIPE)
    assert running.stdout is not None
    assert running.stdout.readline() == b"up\n"
    running.terminate()
    running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 143
    eventually_sync((tmp_path / "hung-up").exists)


def test_who_reads_no_more_ends_it(ann: Person) -> None:
    running = ann.begin("exec", JOB, "--", "yes")
    assert running.stdout is not None
    assert running.stdout.read(4) == b"y\ny\n"
    running.stdout.close()
    assert running.wait(PATIENCE_S) == 1


def test_a_slow_reader_bounds_memory(ann: Person) -> None:
    """256 MiB wait in the job, not here, while nobody reads; then all of them come, and the same."""
    size = 256 * 2**20
    program = f"import hashlib,sys; b=bytes(range(256))*4096; [sys.stdout.buffer.write(b) for _ in range({size >> 20})]"
    running = ann.begin("exec", JOB, "--", sys.executable, "-c", program)
    assert running.stdout is not None
    digest = hashlib.sha256(running.stdout.read(2**20))
    here = psutil.Process(running.pid)
    used = []

    def is_idle() -> bool:
        before = here.cpu_times()
        used.append(here.memory_info().rss)
        return len(used) > 50 and here.cpu_times() == before

    eventually_sync(is_idle)
    assert max(used) < 120 * 2**20
    while chunk := running.stdout.read(2**20):
        digest.update(chunk)
    assert running.wait(PATIENCE_S) == 0
    assert digest.hexdigest() == hashlib.sha256(bytes(range(256)) * 4096 * (size >> 20)).hexdigest()

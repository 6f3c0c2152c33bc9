"""Sessions end to end: the command line, REST, and real pods on this machine."""

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.integration.gpu_dev.conftest import ROOT, System
from tests.integration.gpu_dev.sessions.conftest import Terminal
from tests.waiting import PATIENCE_S, eventually_sync


@contextmanager
def at_terminal(system: System, *words: str, who: str = "alice") -> Iterator[Terminal]:
    terminal = Terminal({**system.environment(who), "PYTHONPATH": str(ROOT), "TERM": "vt100"}, *words)
    try:
        yield terminal
    finally:
        terminal.close()


def a_session(system: System, *words: str) -> str:
    """A session that runs."""
    job_id = system.cli("submit", "--gpus", "1", "--for", "10m", *words).stdout.strip()
    eventually_sync(lambda: "running" in system.cli("show", job_id).stdout)
    return job_id


def test_dev_waits_and_lands_in_a_shell_on_its_gpus(system: System) -> None:
    with at_terminal(system, "dev", "--gpus", "2", "--for", "1h", "--name", "mine") as at:
        at.shows("running on")
        at.types("echo gpus=$CUDA_VISIBLE_DEVICES term=$TERM\r")
        at.shows("gpus=0,1 term=vt100")
        at.types("exit 4\r")
        at.shows("goes on until")
        assert at.ends() == 4
    done = system.run_whole("exec", "mine", "--", "sh", "-c", "cat; echo $GPU_DEV_JOB_ID >&2; exit 3", stdin=b"in")
    assert (done.returncode, done.stdout) == (3, b"in")
    assert done.stderr.startswith(b"mine is job-")


def test_ctrl_c_while_waiting_keeps_the_place(system: System) -> None:
    a_session(system, "--gpus", "4")
    with at_terminal(system, "dev", "--gpus", "4", "--for", "1h", "--name", "waits") as at:
        at.shows("place 1 in the queue")
        at.types("\x03")
        at.shows("keeps its place")
        assert at.ends() == 130
    assert "queued" in system.cli("show", "waits").stdout


def test_a_terminal_that_is_left_is_kept(system: System) -> None:
    job_id = a_session(system)
    with at_terminal(system, "shell", job_id) as at:
        at.types("kept=42; echo re''ady\r")
        at.shows("ready")
        at.types("\r~.")
        assert at.ends() == 130
    with at_terminal(system, "attach", job_id) as at:
        at.types("echo va''lue $kept; exit\r")
        at.shows("value 42")
        assert at.ends() == 0


def test_a_job_that_ends_ends_its_shell(system: System) -> None:
    job_id = a_session(system)
    with at_terminal(system, "shell", job_id) as at:
        at.types("echo re''ady\r")
        at.shows("ready")
        assert system.cli("cancel", job_id).returncode == 0
        at.shows(f"{job_id}: ")
        at.ends()
    assert "Trying" not in at.all


@pytest.mark.parametrize("words", [["shell"], ["exec", "--", "true"], ["attach"]])
def test_somebody_else_gets_nothing_of_it(system: System, words: list[str]) -> None:
    job_id = a_session(system)
    with at_terminal(system, words[0], job_id, *words[1:], who="bob") as at:
        assert at.ends() == 3


def test_a_job_that_ends_ends_its_programs(system: System) -> None:
    job_id = a_session(system)
    running = system.begin("exec", job_id, "--", "sh", "-c", "echo up; exec sleep 600")
    assert running.stdout is not None
    assert running.stdout.readline() == "up\n"
    assert system.cli("cancel", job_id).returncode == 0
    _, said = running.communicate(timeout=PATIENCE_S)
    assert running.returncode not in (0, None)
    assert "Traceback" not in said


def test_much_through_a_job_is_the_same(system: System) -> None:
    job_id = a_session(system)
    pieces = [bytes([number]) * 2**20 for number in range(64)]
    command = [sys.executable, "-m", "gpu_dev", "exec", job_id, "--", "cat"]
    running = subprocess.Popen(
        ["sh", "-c", '"$@" | sha256sum', "sh", *command],
        env={**system.environment("alice"), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    shown = running.communicate(b"".join(pieces), timeout=PATIENCE_S)[0]
    assert shown.split()[0].decode() == hashlib.sha256(b"".join(pieces)).hexdigest()

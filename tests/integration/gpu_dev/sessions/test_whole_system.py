"""Sessions end to end: the command line, REST, and real pods on this machine."""

import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

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


def test_a_notebook_is_reached_here(system: System) -> None:
    tools = system.folder / "tools"
    tools.mkdir()
    (tools / "jupyter").write_text(
        "#!/bin/sh\nfor word; do case $word in --port=*) port=${word#--port=};; esac; done\n"
        f'echo "$JUPYTER_TOKEN" >token; exec {sys.executable} -m http.server --bind 127.0.0.1 $port\n'
    )
    (tools / "jupyter").chmod(0o755)
    path = f"PATH={tools}:/usr/bin:/bin"
    running = system.begin("dev", "--gpus", "1", "--for", "1h", "--env", path, "--ide", "jupyter")
    assert running.stdout is not None
    address = urlsplit(running.stdout.readline().strip())

    def fetched() -> bytes:
        with suppress(OSError), urlopen(f"http://{address.netloc}/token", timeout=PATIENCE_S) as answer:
            return bytes(answer.read())
        return b""

    assert eventually_sync(fetched).decode().strip() == parse_qs(address.query)["token"][0]
    running.send_signal(signal.SIGINT)
    assert running.wait(PATIENCE_S) == 130


def test_an_editor_is_opened_on_the_session(system: System) -> None:
    tools = system.folder / "tools"
    tools.mkdir()
    (tools / "code").write_text(f'#!/bin/sh\necho "$@" >{tools}/called.new; mv {tools}/called.new {tools}/called\n')
    (tools / "code").chmod(0o755)
    path = f"{tools}:{system.environment('alice')['PATH']}"
    done = system.run_whole("dev", "--gpus", "1", "--for", "1h", "--ide", "vscode", more={"PATH": path})
    assert done.returncode == 0, done.stderr
    called = eventually_sync(lambda: (tools / "called").exists() and (tools / "called").read_text())
    job_id = system.cli("list", "-o", "name").stdout.strip()
    assert called == f"--remote ssh-remote+{job_id}.gpu-dev\n"
    assert "Include" in (system.folder / ".ssh" / "config").read_text()


def test_run_reads_stdin_to_its_end(system: System) -> None:
    text = b"line\n" * 200_000
    command = ["run", "--gpus", "1", "--for", "10m", "--", "sh", "-c", "cksum; exit 3"]
    done = system.run_whole(*command, stdin=text)
    expected = subprocess.run(["cksum"], input=text, capture_output=True, check=True).stdout
    assert (done.returncode, done.stdout) == (3, expected), done.stderr


def test_run_ends_with_a_command_that_reads_no_input(system: System) -> None:
    running = subprocess.Popen(
        [sys.executable, "-m", "gpu_dev", "run", "--gpus", "1", "--for", "10m", "--", "echo", "done"],
        env={**system.environment("alice"), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with running:
        assert running.stdout is not None
        assert running.stdout.read() == b"done\n"
        assert running.wait(PATIENCE_S) == 0


def test_run_in_a_terminal_gives_the_gpus_back(system: System) -> None:
    with at_terminal(system, "run", "--tty", "--gpus", "1", "--for", "1h", "--", "sh", "-c", "tty -s && exit 6") as at:
        assert at.ends() == 6
        assert "is cancelled" in at.all
    eventually_sync(lambda: "cancelled" in system.cli("list", "--all").stdout)


def test_run_in_a_terminal_is_cancelled_while_it_waits(system: System) -> None:
    a_session(system, "--gpus", "4")
    with at_terminal(system, "run", "--tty", "--gpus", "4", "--for", "1h", "--name", "waits", "--", "true") as at:
        at.shows("place 1 in the queue")
        at.types("\x03")
        assert at.ends() == 130
    assert "cancelled" in system.cli("show", "waits").stdout


def test_a_terminal_that_is_left_is_kept(system: System) -> None:
    job_id = a_session(system)
    with at_terminal(system, "shell", job_id) as at:
        at.types("kept=42; echo re''ady\r")
        at.shows("ready")
        at.types("\r~.")
        at.shows(f"Come back: gpu-dev attach {job_id} ")
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


def test_terminals_are_listed_and_joined_by_name(system: System) -> None:
    job_id = a_session(system, "--name", "box")
    assert system.cli("attach", "box", "--list").stdout.startswith("No terminal is open")
    system.cli("share", "box", "--with", "bob")
    with ExitStack() as terminals:
        for name in ("alice", "bob"):
            at = terminals.enter_context(at_terminal(system, "shell", "box", who=name))
            at.types(f"whose={name}; echo $whose is in\r")
            at.shows(f"{name} is in")
        listed = system.cli("attach", "box", "--list", "-o", "json")
        newest, oldest = json.loads(listed.stdout)["items"]
        assert (newest["user"], oldest["user"]) == ("bob", "alice")
        assert f"{oldest['name']}  alice" in system.cli("attach", job_id, "--list").stdout
        for words, whose in (((), "alice"), (("--terminal", f"pts/{newest['name']}"), "bob")):
            with at_terminal(system, "attach", "box", *words) as joined:
                joined.types("echo this is $whose\r")
                joined.shows(f"this is {whose}")
                joined.types("~.")
                assert joined.ends() == 130
        with at_terminal(system, "attach", "box", "--terminal", "99999") as joined:
            joined.shows("has no open terminal 99999")
            assert joined.ends() == 4

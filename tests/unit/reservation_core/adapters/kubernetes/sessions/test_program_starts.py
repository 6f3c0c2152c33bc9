"""The shell's part of a start, in every shell of this machine, and what the end of a program says."""

import json
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from reservation_core.adapters.kubernetes.api_server.requests import encoded
from reservation_core.adapters.kubernetes.sessions.program_starts import (
    exec_query,
    read_end,
    signal_command,
    size_message,
    start_command,
)
from reservation_core.ports.sessions.pod_streams import Program, ProgramEnd, Terminal, TerminalSize
from tests.waiting import PATIENCE_S

SHELLS = {
    "dash": ("dash",),
    "bash": ("bash", "--posix"),
    "busybox": ("busybox", "sh"),
    "mksh": ("mksh",),
    "zsh": ("zsh", "--emulate", "sh"),
}
IN_EACH_SHELL = pytest.mark.parametrize("shell", [name for name in SHELLS if shutil.which(SHELLS[name][0])])


def run_in(
    shell: str, command: tuple[str, ...], *, folder: str | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run what is meant for `sh` in another shell, with an environment of its own."""
    assert command[0] == "sh"
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", **variables}
    program, *options = SHELLS[shell]
    return subprocess.run(
        [shutil.which(program) or program, *options, *command[1:]],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        input="",
    )


@IN_EACH_SHELL
def test_a_program_begins_with_its_number_and_has_its_variables(shell: str) -> None:
    script = 'echo "$$|$A|$B|$TERM|$0|$1"'
    program = Program(("sh", "-c", script, "a b", "-x"), Terminal(), (("A", "1 '\"$x"), ("B", "l\n2")))
    result = run_in(shell, start_command(program), HOME="/")
    number, _, rest = result.stdout.partition("\n")
    assert rest == f"{number}|1 '\"$x|l\n2|xterm-256color|a b|-x\n"
    assert result.stderr == ""


@IN_EACH_SHELL
def test_a_program_without_variables_changes_none(shell: str) -> None:
    result = run_in(shell, start_command(Program(("env",))), ONLY="this")
    names = {line.partition("=")[0] for line in result.stdout.splitlines()[1:]}
    assert names - {"PWD", "OLDPWD", "SHLVL", "_"} == {"ONLY", "PATH"}


@IN_EACH_SHELL
@pytest.mark.parametrize("home", ["", "/no/such/folder", "own"])
def test_a_program_starts_at_home_where_no_folder_is_named(shell: str, home: str, tmp_path: Path) -> None:
    variables = {"HOME": str(tmp_path) if home == "own" else home} if home else {}
    result = run_in(shell, start_command(Program(("pwd",))), folder="/", **variables)
    assert result.stdout.splitlines()[1:] == [str(tmp_path) if home == "own" else "/"]
    assert result.stderr == ""


@IN_EACH_SHELL
def test_a_program_stays_in_the_folder_that_is_named(shell: str, tmp_path: Path) -> None:
    result = run_in(shell, start_command(Program(("pwd",))), folder=str(tmp_path), HOME="/tmp")
    assert result.stdout.splitlines()[1:] == [str(tmp_path)]


@IN_EACH_SHELL
def test_a_command_that_cannot_be_run_ends_as_in_a_shell(shell: str) -> None:
    absent = run_in(shell, start_command(Program(("no-such-command",))))
    assert (absent.returncode, "no-such-command" in absent.stderr) == (127, True)
    assert run_in(shell, start_command(Program(("/etc/passwd",)))).returncode == 126


@IN_EACH_SHELL
@pytest.mark.parametrize("named", ["", "/usr/sbin/nologin", "/bin/false", "/no/such/shell"])
def test_a_login_shell_is_one_that_is_there(shell: str, named: str, tmp_path: Path) -> None:
    (tmp_path / ".profile").write_text("echo from the profile\n")
    variables = {"SHELL": named} if named else {}
    result = run_in(shell, start_command(Program()), HOME=str(tmp_path), **variables)
    assert result.returncode == 0
    assert "from the profile" in result.stdout


def test_the_users_shell_comes_first(tmp_path: Path) -> None:
    own = tmp_path / "own-shell"
    own.write_text('#!/bin/sh\necho "own $*"\n')
    own.chmod(0o755)
    assert run_in("dash", start_command(Program()), SHELL=str(own)).stdout.splitlines()[1:] == ["own -l"]


@IN_EACH_SHELL
def test_signals_go_to_the_whole_group(shell: str) -> None:
    with subprocess.Popen(["sh", "-c", "sleep 600 & sleep 600"], start_new_session=True) as group:
        try:
            refused = run_in(shell, signal_command((group.pid,), ("NOSUCH",)))
            assert refused.returncode != 0
            assert group.poll() is None
            ended = 2**22 - 1
            assert run_in(shell, signal_command((ended, group.pid), ("CONT", "TERM"))).returncode == 0
            assert group.wait(PATIENCE_S) == -signal.SIGTERM
        finally:
            with suppress(ProcessLookupError):
                os.killpg(group.pid, signal.SIGKILL)
    assert run_in(shell, signal_command((group.pid,), ("TERM",))).returncode == 0


def test_a_command_is_passed_on_word_by_word() -> None:
    query = exec_query(("a", "b c", "&"), stdin=True, terminal=True)
    assert encoded(query) == (
        "?container=workload&stdin=true&stdout=true&stderr=false&tty=true&command=a&command=b+c&command=%26"
    )
    assert exec_query(("a",), stdin=False, terminal=False)["stderr"] is True


def test_a_size_has_the_names_of_the_api() -> None:
    size = TerminalSize(columns=100, rows=30)
    assert json.loads(size_message(size.columns, size.rows)) == {"Width": 100, "Height": 30}


@pytest.mark.parametrize(
    ("status", "end"),
    [
        ({"status": "Success"}, ProgramEnd(0)),
        (
            {"status": "Failure", "details": {"causes": [{"reason": "X"}, {"reason": "ExitCode", "message": "137"}]}},
            ProgramEnd(137),
        ),
        ({"status": "Failure", "message": "no such container"}, ProgramEnd(None, "no such container")),
        (
            {"status": "Failure", "message": "m", "details": {"causes": [{"reason": "ExitCode", "message": "x"}]}},
            ProgramEnd(None, "m"),
        ),
        ({"details": []}, ProgramEnd(None, "The cluster does not say how the program ended.")),
        ([], ProgramEnd(None, "The cluster does not say how the program ended.")),
    ],
)
def test_an_end_is_read_from_a_status(status: object, end: ProgramEnd) -> None:
    assert read_end(json.dumps(status).encode()) == end


def test_an_end_that_is_no_json_is_unknown() -> None:
    assert read_end(b"\xff{").exit_code is None

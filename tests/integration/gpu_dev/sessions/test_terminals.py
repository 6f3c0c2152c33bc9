"""`gpu-dev shell` and `attach` at real pseudo-terminals: what is typed, sizes, escapes, and the terminal put back."""

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.integration.gpu_dev.sessions.conftest import Person, Terminal
from tests.sessions.sessions_server import JOB, SessionsServer, problem
from tests.waiting import eventually_sync


@pytest.fixture
def opened() -> Iterator[list[Terminal]]:
    terminals: list[Terminal] = []
    yield terminals
    for terminal in terminals:
        terminal.close()


def in_shell(ann: Person, opened: list[Terminal], *words: str) -> Terminal:
    """A terminal in which the job's shell waits for input."""
    opened.append(Terminal(ann.environment, *(words or ("shell", JOB))))
    opened[-1].shows("job$ ")
    return opened[-1]


def is_raw(terminal: Terminal) -> bool:
    return not termios.tcgetattr(terminal.master)[3] & termios.ECHO


def test_a_shell_and_its_exit_code(ann: Person, opened: list[Terminal]) -> None:
    at = in_shell(ann, opened)
    assert is_raw(at)
    at.types("tty -s && echo in a ${#HOME}; exit 5\r")
    at.shows("in a ")
    at.shows(f"{JOB} goes on")
    at.shows(f"gpu-dev cancel {JOB}")
    assert at.ends() == 5
    assert not is_raw(at)


def test_ctrl_c_is_the_programs(ann: Person, opened: list[Terminal]) -> None:
    at = in_shell(ann, opened)
    at.types("trap 'echo caught' INT; echo re''ady; while :; do sleep 0.05; done\r")
    at.shows("ready\r\n")
    at.types("\x03")
    at.shows("caught")


def test_what_is_typed_is_shown_once(ann: Person, opened: list[Terminal]) -> None:
    at = in_shell(ann, opened)
    at.types("echo o''ne\r")
    at.shows("job$ ")
    assert at.all.count("echo o''ne") == 1
    assert at.all.count("\none\r") == 1


def test_the_size_is_the_terminals_and_follows_it(ann: Person, opened: list[Terminal], server: SessionsServer) -> None:
    at = in_shell(ann, opened)
    resize(at, 132, 43)
    at.types("while [ \"$(stty size)\" != '43 132' ]; do sleep 0.05; done; echo re''sized\r")
    at.shows("resized")


def resize(at: Terminal, columns: int, rows: int) -> None:
    fcntl.ioctl(at.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def test_a_large_paste_arrives(ann: Person, opened: list[Terminal]) -> None:
    text = "0123456789~\n" * 20_000
    at = in_shell(ann, opened)
    at.types("stty -echo; echo rea''dy; head -n 20000 | cksum | tr -d ' \\n'; stty echo; echo pa''sted\r")
    at.shows("ready\r\n")
    for start in range(0, len(text), 1024):
        eventually_sync(lambda start=start: at.takes(text[start : start + 1024]))  # type: ignore[misc]
    at.shows("pasted")
    expected = subprocess.run(["cksum"], input=text.encode(), capture_output=True, check=True).stdout
    assert "".join(expected.decode().split()) in at.all


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_puts_the_terminal_back(ann: Person, opened: list[Terminal], number: signal.Signals) -> None:
    at = in_shell(ann, opened)
    os.kill(at.pid, number)
    assert at.ends() == 128 + number
    assert not is_raw(at)


def test_escapes(ann: Person, opened: list[Terminal]) -> None:
    at = in_shell(ann, opened)
    at.types("~?")
    at.shows("leave the job's terminal")
    at.types("echo a~.b ~~\r")
    at.shows("a~.b ~~\r\n")
    at.types("~~x\r")
    at.shows("~x")
    at.types("~.")
    assert at.ends() == 130
    assert not is_raw(at)
    assert f"{JOB} goes on" in at.all


def test_suspended_and_continued(ann: Person, opened: list[Terminal]) -> None:
    """A shell with job control starts it, gets the terminal back while it is stopped, and hands it over again."""
    at = Terminal(ann.environment, command=["/bin/bash", "--norc", "-i"])
    opened.append(at)
    at.types(f"{sys.executable} -m gpu_dev shell {JOB}\r")
    at.shows("job$ ")
    at.types("~\x1a")
    at.shows("Stopped")
    at.types("echo out''side\r")
    at.shows("outside")
    at.types("fg\r")
    at.types("\recho in''side\r")
    at.shows("inside")


def test_a_left_terminal_is_joined_again(ann: Person, opened: list[Terminal]) -> None:
    at = in_shell(ann, opened)
    at.types("kept=42\r")
    at.shows("job$ ")
    at.types("~.")
    at.ends()
    back = in_shell(ann, opened, "attach", JOB)
    back.types("echo va''lue $kept; exit\r")
    back.shows("value 42")
    assert back.ends() == 0


def test_a_broken_connection_comes_back_by_itself(ann: Person, opened: list[Terminal], server: SessionsServer) -> None:
    server.terminal_key = "7"
    at = in_shell(ann, opened)
    at.types("kept=42\r")
    at.shows("job$ ")
    server.go_down()
    at.shows("Trying to come back")
    assert not is_raw(at)
    server.come_back()
    at.shows("job$ ")
    eventually_sync(lambda: is_raw(at))
    at.types("\recho va''lue $kept; exit\r")
    at.shows("value 42")
    assert at.ends() == 0
    asked = [parse_qs(urlsplit(path).query) for path in server.asked]
    assert [query.get("terminal") for query in asked] == [None, ["7"]]


def test_ctrl_c_gives_up_coming_back(ann: Person, opened: list[Terminal], server: SessionsServer) -> None:
    at = in_shell(ann, opened)
    server.go_down()
    at.shows("Trying to come back")
    at.types("\x03")
    assert at.ends() == 130
    assert not is_raw(at)


def test_a_terminal_that_was_not_kept(ann: Person, opened: list[Terminal], server: SessionsServer) -> None:
    at = in_shell(ann, opened)
    server.refusals[f"/v1/jobs/{JOB}/exec"] = problem(HTTPStatus.CONFLICT, "No terminal is kept.")
    server.go_down()
    server.come_back()
    at.shows("No terminal is kept.")
    assert at.ends() == 5
    assert not is_raw(at)


@pytest.mark.parametrize(
    ("key", "why"),
    [("", "The terminal ended with its connection, as this cluster keeps none."), ("7", "The terminal has ended.")],
)
def test_a_terminal_that_is_not_there_any_more(
    ann: Person, opened: list[Terminal], server: SessionsServer, key: str, why: str
) -> None:
    server.terminal_key = key
    at = in_shell(ann, opened)
    server.refusals[f"/v1/jobs/{JOB}/exec"] = problem(HTTPStatus.CONFLICT, "Run tmux.", "no_terminal")
    server.go_down()
    server.come_back()
    at.shows(why)
    at.shows(f"try: gpu-dev shell {JOB}")
    assert at.ends() == 5


def test_exec_in_a_terminal(ann: Person, opened: list[Terminal], server: SessionsServer) -> None:
    at = Terminal(ann.environment, "exec", "--tty", JOB, "--", "sh", "-c", "tty -s && exit 9")
    opened.append(at)
    assert at.ends() == 9
    assert "tty=true" in server.asked[0]


def test_without_a_terminal_the_shell_reads_stdin(ann: Person, server: SessionsServer) -> None:
    done = ann.run("shell", JOB, stdin=b"echo $((6 * 7)); exit 3\n")
    assert (done.returncode, done.stdout) == (3, b"42\n")
    assert "tty" not in server.asked[0]


def test_the_only_session_needs_no_id(ann: Person, opened: list[Terminal]) -> None:
    in_shell(ann, opened, "shell")

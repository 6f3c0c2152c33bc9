"""The command line's side of sessions: the program that people run, against a server of sessions."""

import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.sessions.sessions_server import TOKEN, SessionsServer
from tests.waiting import PATIENCE_S, eventually_sync

ROOT = Path(__file__).parents[4]


@pytest.fixture
def server() -> Iterator[SessionsServer]:
    with SessionsServer() as running:
        yield running


def closed(running: subprocess.Popen[bytes]) -> None:
    running.kill()
    with suppress(ValueError):  # a stream that the test has closed
        running.communicate()
    for stream in (running.stdin, running.stdout, running.stderr):
        if stream is not None:
            stream.close()


class Person:
    """Types `gpu-dev` commands at one server."""

    def __init__(self, server: SessionsServer, home: Path) -> None:
        self.environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "HOME": str(home),
            "GPU_DEV_SERVER": server.url,
            "GPU_DEV_TOKEN": TOKEN,
            "TERM": "xterm-256color",
            "TZ": "UTC",
        }
        self.started: list[subprocess.Popen[bytes]] = []

    def run(
        self, *words: str, stdin: bytes = b"", more: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """A command off a terminal, to its end."""
        return subprocess.run(
            [sys.executable, "-m", "gpu_dev", *words],
            env={**self.environment, **(more or {})},
            input=stdin,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def begin(self, *words: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """A command off a terminal; it is ended with the test."""
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", "gpu_dev", *words]
        self.started.append(subprocess.Popen(command, env=self.environment, stdin=stdin, stdout=pipe, stderr=pipe))
        return self.started[-1]


@pytest.fixture
def ann(server: SessionsServer, tmp_path: Path) -> Iterator[Person]:
    person = Person(server, tmp_path)
    yield person
    for running in person.started:
        closed(running)


class Terminal:
    """A pseudo-terminal in which `gpu-dev` or another command is the foreground program."""

    def __init__(self, environment: Mapping[str, str], *words: str, command: Sequence[str] = ()) -> None:
        command = command or [sys.executable, "-m", "gpu_dev", *words]
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.execve(command[0], command, environment)
        # Else Ctrl-C throws away what was shown last: on a busy machine also what the program answers to it.
        modes = termios.tcgetattr(self.master)
        modes[3] |= termios.NOFLSH
        termios.tcsetattr(self.master, termios.TCSANOW, modes)
        os.set_blocking(self.master, False)
        self.shown = ""
        self.all = ""
        self._code: int | None = None

    def shows(self, text: str) -> None:
        """Wait until the terminal shows it; what was shown up to then is done with."""
        try:
            eventually_sync(lambda: self._read() and text in self.shown)
        except AssertionError:
            raise AssertionError(f"{text!r} did not come: {self.all!r}") from None
        self.shown = self.shown.partition(text)[2]

    def types(self, text: str) -> None:
        os.write(self.master, text.encode())

    def takes(self, text: str) -> bool:
        """Type it if all of it can be taken now."""
        try:
            return os.write(self.master, text.encode()) == len(text)
        except BlockingIOError:
            return False

    def ends(self) -> int:
        """Wait for the end, and return the exit code."""
        eventually_sync(lambda: self._read() and self._ended())
        assert self._code is not None
        self._read()
        return self._code

    def close(self) -> None:
        if not self._ended():
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        with suppress(OSError):
            os.close(self.master)

    def _ended(self) -> bool:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code is not None

    def _read(self) -> bool:
        with suppress(OSError):  # nothing there yet, or the other end is closed
            while chunk := os.read(self.master, 65_536).decode(errors="replace"):
                self.shown += chunk
                self.all += chunk
        return True

"""Runs a server that must not outlive the tests: `python guarded.py COMMAND…` ends it when standard input ends.

The test process holds the other end of standard input, so that however it dies, the server dies too.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO


def start(command: list[str], log: Path, *, stdout: int | None = None) -> subprocess.Popen[bytes]:
    """Start a guarded server; what it prints goes to `log`. Close the answer's `stdin` to end it."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, *command],
            stdin=subprocess.PIPE,
            stdout=output if stdout is None else stdout,
            stderr=output,
            start_new_session=True,
        )


def end(server: subprocess.Popen[bytes]) -> None:
    """End a guarded server and wait until it is gone."""
    assert server.stdin is not None
    server.stdin.close()
    server.wait(timeout=90)


def _guard(command: list[str], word: IO[bytes]) -> int:
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    pidfd = os.pidfd_open(child.pid)
    ready, _, _ = select.select([word.fileno(), pidfd], [], [])
    if word.fileno() in ready:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=3)
        child.kill()
    return child.wait()


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the end is standard input's alone to say
    sys.exit(_guard(sys.argv[1:], sys.stdin.buffer))

"""Programs of ours in processes that are forked from one which has loaded what they need: a start costs no seconds.

The process is one of its own, with its own environment, output and end, as after `python -m`: it is killed, stopped and
asked to end like any other. What a program does before its first own line, loading, is not tried this way.
"""

import gc
import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from threading import Lock
from types import FrameType
from typing import Any

from tests.programs.compiled_templates import keep_as_asked
from tests.waiting import PATIENCE_S, eventually_sync

LOADED = [
    "admission_webhook.serve",
    "api_service.app",
    "availability_updater.update",
    "gpu_admission.serve",
    "gpu_scheduler.health",
    "httpcore",
    "kubernetes.aio.client",
    "reservation_core.adapters.identity.outside",
    "reservation_core.adapters.notices.webhooks",
    "reservation_core.runtime.kubernetes",
    "pod_scheduling.runtime.map_scheduling",
    "reservation_core.runtime.processes.programs",
    "reservation_core.runtime.http.health",
    "reservation_core.runtime.http.serving",
    "reservation_core.runtime.wiring",
    "reservation_expiry.expire",
    "reservation_processor.process",
    "sqlalchemy.dialects.postgresql.asyncpg",
    "standalone.system",
    "tests.faults.systems.watched_runtime",
    "uvicorn.lifespan.on",
]
_ROOT = Path(__file__).parents[2]


class _Forking:
    """What processes are forked from, started when the first is wanted. It is asked and answers by lines of JSON."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._one_at_a_time = Lock()
        self._asked = 0

    def ask(self, **question: Any) -> tuple[int, Any]:
        """The question's number, and the answer."""
        with self._one_at_a_time:
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", __name__],
                    cwd=_ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._asked += 1
            self._process.stdin.write(json.dumps(question | {"number": self._asked}) + "\n")
            self._process.stdin.flush()
            while True:  # who was interrupted has left the answer
                number, answer = json.loads(self._process.stdout.readline())
                if number == self._asked:
                    return number, answer

    def end(self) -> None:
        """End it; what it has started stays."""
        with self._one_at_a_time:
            if self._process is not None:
                self._process.communicate()
                self._process = None


_forking = _Forking()


@contextmanager
def prepared_processes() -> Iterator[None]:
    """Processes can be started in this block; what they are forked from is gone after it."""
    try:
        yield
    finally:
        _forking.end()


class PreparedProcess:
    """`python -m MODULE ARGUMENTS`, in the repository with this environment, writing to the end of `log`."""

    def __init__(self, module: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        asked = {"start": [module, *arguments], "environment": dict(environment), "log": str(log)}
        self._start, self.pid = _forking.ask(**asked)
        self._ended: int | None = None

    def poll(self) -> int | None:
        """How it ended, as subprocess says it (-9: killed); None while it runs."""
        if self._ended is None:
            _, self._ended = _forking.ask(ended=self._start)
        return self._ended

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended since
                os.kill(self.pid, number)

    def wait(self, timeout: float) -> int:
        """Wait for its end; returns how it ended. Raises AssertionError."""
        eventually_sync(lambda: self.poll() is not None, timeout)
        assert self._ended is not None
        return self._ended


def started(
    program: Sequence[str], environment: Mapping[str, str], log: Path, *, forked: bool
) -> "PreparedProcess | subprocess.Popen[bytes]":
    """Start `program`, a module with its arguments; not `forked`, as a person would, which takes seconds."""
    log.touch()
    module, *arguments = program
    if forked:
        return PreparedProcess(module, arguments, environment, log)
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", *program],
            cwd=_ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )


def ran(program: Sequence[str], environment: Mapping[str, str], log: Path) -> tuple[int, str]:
    """Fork `program`, a module with its arguments, and wait for its end: how it ended, and what it wrote anywhere."""
    log.write_text("")
    code = started(program, environment, log, forked=True).wait(PATIENCE_S)
    return code, log.read_text()


def _fork_what_is_asked_for() -> None:
    """Load, and answer; returns in each process that is forked, and when nobody asks any more."""
    gc.disable()
    for module in LOADED:
        import_module(module)
    keep_as_asked()
    # Programs look once for garbage among all that is loaded, two thirds of what a start costs: it is done for them.
    gc.collect()
    gc.freeze()
    gc.enable()
    running: dict[int, int] = {}
    ended: dict[int, int] = {}

    def note_ends(_number: int, _frame: FrameType | None) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            ended[running.pop(pid)] = os.waitstatus_to_exitcode(status)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for those who ask
    signal.signal(signal.SIGCHLD, note_ends)
    for line in sys.stdin:
        question = json.loads(line)
        answer: int | None
        if "start" in question:
            # Numbers of processes are used again: its end is that of this start.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
            answer = os.fork()
            if not answer:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
                _become(question["start"], question["environment"], question["log"])
                return
            running[answer] = question["number"]
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        else:
            answer = ended.get(question["ended"])
        print(json.dumps([question["number"], answer]), flush=True)


def _become(program: list[str], environment: dict[str, str], log: str) -> None:
    """In the new process: be that program."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for ours, standard in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(ours, standard)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = program
    runpy.run_module(program[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _fork_what_is_asked_for()

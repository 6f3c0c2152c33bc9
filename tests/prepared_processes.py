"""Programs of ours in processes that are forked from one which has loaded what they need: a start costs no seconds.

The process is one of its own, with its own environment, output and end, as after `python -m`: it is killed, stopped and
asked to end like any other. What a program does before its first own line, loading, is not tried this way.
"""

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker
from pathlib import Path

LOADED = [
    "api_service.app",
    "availability_updater.update",
    "gpu_scheduler.health",
    "kubernetes.aio.client",
    "reservation_core.runtime.kubernetes",
    "pod_scheduling.runtime.map_scheduling",
    "reservation_core.runtime.processes.programs",
    "reservation_core.runtime.http.serving",
    "reservation_core.runtime.wiring",
    "reservation_expiry.expire",
    "reservation_processor.process",
    "tests.faults.watched_runtime",
]
_ROOT = Path(__file__).parents[1]
_FORKING = multiprocessing.get_context("forkserver")


@contextmanager
def prepared_processes(folder: Path) -> Iterator[None]:
    """Processes can be started in this block; what they are forked from is gone after it, but for its folder."""
    _FORKING.set_forkserver_preload(LOADED)
    multiprocessing.current_process()._config["tempdir"] = str(folder)  # else it would be removed at the very end
    try:
        yield
    finally:
        forkserver._forkserver._stop()
        resource_tracker._resource_tracker._stop()


class PreparedProcess:
    """`python -m MODULE ARGUMENTS`, in the repository with this environment, writing to the end of `log`."""

    def __init__(self, module: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._process = _FORKING.Process(target=_run, args=(module, [*arguments], dict(environment), str(log)))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """How it ended, as subprocess says it (-9: killed); None while it runs."""
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def wait(self, timeout: float) -> int:
        """Wait for its end; returns how it ended. Raises TimeoutError."""
        self._process.join(timeout)
        ended = self.poll()
        if ended is None:
            raise TimeoutError(f"process {self.pid} did not end within {timeout} s")
        return ended


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


def _run(module: str, arguments: list[str], environment: dict[str, str], log: str) -> None:
    """In the new process: be that program."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for ours, standard in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(ours, standard)
    os.chdir(_ROOT)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)

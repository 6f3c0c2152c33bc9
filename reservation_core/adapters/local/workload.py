"""A pod's processes, from the fork of the workload to the death of its last descendant."""

# ruff: noqa: PTH110, PTH123, S606, SIM105, TID251
# Part of the supervisor, which starts once per pod: importing pathlib would cost 5 ms.

import os
import select
import sys
import time

try:
    import _signal as signal  # type: ignore[import-not-found]  # `signal` takes 5 ms to make enums of the numbers
except ImportError:
    import signal

from reservation_core.adapters.boot_time import seconds_since_boot
from reservation_core.adapters.local.bounded_log import BUFFER, BoundedLog
from reservation_core.adapters.local.kernel import (
    PR_SET_PDEATHSIG,
    boot_id,
    descendants,
    prctl,
    signal_group,
    signal_process,
    start_ticks,
)
from reservation_core.adapters.local.pod_files import OUTPUT, Spec, as_json, read_seconds, write_atomically
from reservation_core.adapters.local.sessions.entrance import Entrance

NOT_EXECUTABLE = 126
NOT_FOUND = 127
LONGEST_SLEEP_S = 30.0
_LAST_BUFFERS = 1024


class EndRequest:
    """Records whether SIGTERM or SIGINT has arrived."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self, _number: int, _frame: object) -> None:
        self.asked = True


class PodProcess:
    """The workload's process and its descendants."""

    def __init__(self, pod_dir: str, tombstone: str, log: BoundedLog, spec: Spec, wake: int, contained: bool) -> None:
        self.dir = pod_dir
        self.tombstone = tombstone
        self.log = log
        self.output: int | None = None
        self.spec = spec
        self.wake = wake
        self.contained = contained
        self.entrance: Entrance | None = None
        self.pid = 0
        self.status: int | None = None
        self.childless = True
        self.started_at: float | None = None
        self.started_at_boot: float | None = None

    def write_state(self) -> None:
        """Write state.json. `started_at` is null until the command itself runs."""
        me = os.getpid()
        fields = {
            "supervisor_pid": me,
            "supervisor_ticks": start_ticks(me),
            "workload_pid": self.pid or None,
            "workload_ticks": start_ticks(self.pid) if self.pid else None,
            "boot_id": boot_id(),
            "contained": self.contained,
            "started_at": self.started_at,
            "started_at_boot": self.started_at_boot,
        }
        write_atomically(self.dir + "/state.json", as_json(fields))

    def note_start(self) -> None:
        self.started_at, self.started_at_boot = time.time(), seconds_since_boot()

    def start(self, umask: int) -> tuple[int, str] | None:
        """Start the workload. Returns None when it runs, or (exit code, why it can't)."""
        self._open_entrance(umask)
        if not self.spec.command:
            self.note_start()
            self.write_state()
            return None
        output = self._open_output()
        go_read, go_write = os.pipe()
        error_read, error_write = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(go_write)
            self._become_workload(parent, go_read, error_write, output, umask)
        self.childless = False
        os.close(go_read)
        os.close(error_write)
        # The identity must be on disk before the first instruction of the workload runs.
        self.write_state()
        os.write(go_write, b"g")
        os.close(go_write)
        with open(error_read, "rb") as file:
            error = file.read()
        self.note_start()
        if error:
            code, _, detail = error.decode("utf-8", "replace").partition(" ")
            return int(code), detail
        self.write_state()
        return None

    @property
    def directory(self) -> str:
        """Where the pod's programs start."""
        return self.spec.working_dir or self.dir + "/scratch"

    def _open_entrance(self, umask: int) -> None:
        try:
            self.entrance = Entrance(self.dir, self.spec.env, self.directory, umask)
        except OSError as problem:
            print(f"nobody can enter the pod: {problem}", file=sys.stderr)  # noqa: T201

    def _open_output(self) -> int:
        """Open the named pipe for output, whose name identifies orphans; return the end to write to."""
        path = f"{self.dir}/{OUTPUT}"
        try:
            os.mkfifo(path, 0o600)
        except FileExistsError:
            pass
        self.output = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        # Kept open here as well: without a writer, the other end would always be readable.
        return os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def _become_workload(self, parent: int, go: int, error: int, output: int, umask: int) -> None:
        """Run the command in the child, in its own session that dies with the supervisor. Never returns."""
        code, what = NOT_EXECUTABLE, "the workload could not be set up"
        try:
            os.setsid()
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent or os.read(go, 1) != b"g":
                os._exit(NOT_EXECUTABLE)
            # exec resets handlers, but keeps signals ignored that Python ignores.
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            os.umask(umask)
            os.dup2(output, 1)
            os.dup2(output, 2)
            directory = self.directory
            what = f"its working directory {directory} can't be entered"
            os.chdir(directory)
            what = f"the command {self.spec.command[0]} can't be run"
            os.execvpe(self.spec.command[0], self.spec.command, self.spec.env)
        except (OSError, ValueError) as problem:
            missing = isinstance(problem, FileNotFoundError) and what.startswith("the command")
            code = NOT_FOUND if missing else NOT_EXECUTABLE
            why = os.strerror(problem.errno) if isinstance(problem, OSError) and problem.errno else str(problem)
            os.write(error, f"{code} {what}: {why}".encode("utf-8", "replace"))
        finally:
            os._exit(code)

    def reap(self) -> None:
        """Reap ended children. Orphans are reparented to us, so without children there are no descendants."""
        while not self.childless:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.childless = True
                return
            if pid == 0:
                return
            if pid == self.pid:
                self.status = status
            elif self.entrance is not None:
                self.entrance.forget(pid)

    def has_ended(self) -> bool:
        """Whether the command's own process has ended; its descendants may still run."""
        return self.status is not None

    def sleep(self, seconds: float) -> None:
        """Sleep until a signal, at most `seconds`, while copying output to the log."""
        until = time.monotonic() + seconds
        watched = [source for source in (self.wake, self.output, self.entrance) if source is not None]
        while True:
            ready = select.select(watched, [], [], max(0.0, until - time.monotonic()))[0]
            if self.wake in ready:
                os.read(self.wake, 4096)
                return
            if self.entrance is not None and self.entrance in ready and self.entrance.admit():
                self.childless = False
                continue
            if not ready or not self._copy_output() or time.monotonic() >= until:
                return

    def empty_output(self) -> None:
        """Copy the last output to the log, a bounded amount in case an escaped process still prints."""
        for _ in range(_LAST_BUFFERS):
            if not self._copy_output():
                return

    def _copy_output(self) -> bool:
        """Copy a buffer from the pipe to the log; false when the pipe is empty."""
        if self.output is None:
            return False
        try:
            data = os.read(self.output, BUFFER)
        except BlockingIOError:
            return False
        self.log.write(data)
        return bool(data)

    def hold(self, ending: "EndRequest") -> str | None:
        """Wait for the end; return None when the workload ended by itself, else why it must be ended."""
        # Before state.json existed, the deleting process could not send a signal.
        ending.asked = ending.asked or os.path.exists(self.dir + "/delete")
        while True:
            self.log.lower_limit(int(read_seconds(self.dir + "/log_limit") or 0))
            self.reap()
            if self.has_ended():
                return None
            if ending.asked:
                return "asked"
            left = self.seconds_left()
            if left <= 0:
                return "duration_reached"
            self.sleep(min(left, LONGEST_SLEEP_S))

    def seconds_left(self) -> float:
        """Seconds until the deadline, by the clock that can't be set."""
        counted = read_seconds(self.dir + "/deadline_boot")
        if counted is not None:
            return counted - seconds_since_boot()
        # The pod of an older control plane.
        return (read_seconds(self.dir + "/deadline") or float("inf")) - time.time()

    def close_entrance(self) -> None:
        if self.entrance is not None:
            self.entrance.close()
            self.entrance = None

    def terminate(self, grace_s: float) -> None:
        """SIGTERM to the workload's group and wait for its end, at most `grace_s`."""
        self.close_entrance()
        if not self.pid or self.has_ended():
            return
        signal_group(self.pid, signal.SIGTERM)
        signal_group(self.pid, signal.SIGCONT)
        until = time.monotonic() + grace_s
        while time.monotonic() < until:
            self.sleep(min(until - time.monotonic(), LONGEST_SLEEP_S))
            self.reap()
            if self.has_ended():
                return
            less = read_seconds(self.dir + "/delete")
            if less is not None and less < grace_s:  # deleted again, with less grace
                grace_s = less
                until = min(until, time.monotonic() + less)

    def kill_everything(self) -> None:
        """SIGKILL until no descendant is left, however long it takes: until then the pod's GPUs are in use."""
        self.close_entrance()
        if self.pid and not self.contained:
            signal_group(self.pid, signal.SIGKILL)
        pause = 0.01
        while True:
            self.reap()
            if self.childless:
                return
            for pid in descendants(os.getpid()) if self.contained else ():
                signal_process(pid, signal.SIGKILL)
            if not self.contained:
                signal_process(self.pid, signal.SIGKILL)
            self.sleep(pause)
            pause = min(pause * 1.5, 1.0)

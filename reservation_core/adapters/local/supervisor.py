"""The process that stands over one pod: it starts the workload, ends it, and writes down how it ended.

Run as `python -I -S supervisor.py POD_DIR TOMBSTONE LOG [LOG_LIMIT [OPEN_FILES]]`: how many bytes of the output are
kept, and the soft limit of open files that the workload starts with; 0 is none. It starts once per pod, so it imports
little of the standard library and of ours only the modules written for it. It lives in a session of its own and does
not need whoever started it: a control plane that was killed finds it again through the pod's directory:

- `lock`      an exclusive flock for as long as the supervisor lives. Its holder owns the pod.
- `started`   created once (O_EXCL) before anything runs; where it exists nothing is ever started again.
- `spec`      what to run (mode 0600, see `read_spec`); never in argv or in the environment of this process.
- `deadline`  seconds since the epoch; read again before it is acted on, so it may be moved.
- `delete`    asked for: seconds of grace. After the end the pod's directory is then moved to its tombstone.
- `state.json`, `exit.json` what runs, and how it ended; replaced atomically. The room for exit.json is taken before the
  start, so that a disk filled by the workload does not hide its end.
- `output`    the pipe that the workload prints into. It goes into the log from here, which keeps no more than
  LOG_LIMIT bytes (see `bounded_log`), or than the file `log_limit` says. What a full disk does not take is left out of
  the log; the workload learns nothing of it and is not stopped for it.

On Linux every descendant stays within reach (PR_SET_CHILD_SUBREAPER), daemons too. Elsewhere there is no such call:
only the workload's process group is ended, and state.json says `"contained": false`.
"""

# ruff: noqa: PTH100, PTH104, PTH110, PTH116, PTH123
# Part of the supervisor, which starts once per pod: importing pathlib alone would cost it 5 ms.

import fcntl
import os
import resource
import sys
import time

try:
    import _signal as signal  # type: ignore[import-not-found]  # `signal` takes 5 ms to make enums of the numbers
except ImportError:
    import signal

sys.path.append(os.path.abspath(__file__ + "/../../../.."))  # `-I -S` leaves the standard library alone there

from reservation_core.adapters.boot_time import seconds_since_boot
from reservation_core.adapters.local.bounded_log import BoundedLog
from reservation_core.adapters.local.kernel import PR_SET_CHILD_SUBREAPER, boot_id, prctl
from reservation_core.adapters.local.pod_files import (
    as_json,
    read_seconds,
    read_spec,
    reserve_room,
    tidy,
    write_atomically,
)
from reservation_core.adapters.local.workload import NOT_EXECUTABLE, EndRequest, PodProcess

LOCK_PATIENCE_S = 10.0


def take_lock(pod_dir: str, tombstone: str) -> str | None:
    """Become the pod's owner. Returns None, or why this pod is none of ours: `exists` or `gone`."""
    fd = os.open(pod_dir + "/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    patience = time.monotonic() + LOCK_PATIENCE_S
    while True:
        if os.path.exists(pod_dir + "/started"):
            return "exists"
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            # Another supervisor about to start, or somebody who removes the pod: both take moments.
            if time.monotonic() > patience:
                return "exists"
            time.sleep(0.005)
    # From here on nobody else may remove the directory. It may have been removed before, or been made after a removal.
    try:
        here, mine = os.stat(pod_dir + "/lock"), os.fstat(fd)
    except FileNotFoundError:
        return "gone"
    if (here.st_dev, here.st_ino) != (mine.st_dev, mine.st_ino) or os.path.exists(tombstone):
        return "gone"
    # A pod whose end was asked for before it ran never runs.
    return "gone" if os.path.exists(pod_dir + "/delete") else None


def finish(pod: PodProcess, exit_code: int | None, reason: str | None, detail: str | None) -> None:
    """Write exit.json, then remove the pod if that was asked for. Tries until the disk takes it."""
    fields = {
        "exit_code": exit_code,
        "started_at": pod.started_at,
        "started_at_boot": pod.started_at_boot,
        "finished_at": time.time(),
        "finished_at_boot": seconds_since_boot(),
        "boot_id": boot_id(),
        "reason": reason,
        "detail": detail,
    }
    while True:
        try:
            write_atomically(pod.dir + "/exit.json", as_json(fields))
            break
        except FileNotFoundError:
            raise
        except OSError as problem:
            print(f"could not write exit.json: {problem}; trying again", file=sys.stderr)  # noqa: T201
            if os.path.exists(pod.dir + "/delete"):
                break  # nobody will ask how it ended, and moving the directory needs no room
            pod.sleep(0.5)
    # Looked at after exit.json is there: whoever asks for the removal later sees exit.json and removes the pod itself.
    if os.path.exists(pod.dir + "/delete"):
        os.rename(pod.dir, pod.tombstone)
        tidy(pod.tombstone)


def tell(ready: int, answer: bytes) -> None:
    """Answer whoever started this; it may have been killed, which changes nothing for the pod."""
    try:
        os.write(ready, answer)
        os.close(ready)
    except BrokenPipeError:
        return


def supervise(pod: PodProcess, ending: EndRequest, umask: int, ready: int) -> None:
    """The pod's whole life."""
    try:
        refused = pod.start(umask)
    except OSError as error:
        refused = NOT_EXECUTABLE, f"the machine could not start it: {error.strerror}"
    tell(ready, b"started")
    if refused is not None:
        pod.kill_everything()
        pod.empty_output()
        problem = f"The pod did not start: {refused[1]}. Correct the job and submit it again."
        pod.log.say(problem)
        finish(pod, refused[0], "start_failed", problem)
        return
    why = pod.hold(ending)
    if why is not None:
        asked_grace = read_seconds(pod.dir + "/delete")
        pod.terminate(pod.spec.grace_s if asked_grace is None else asked_grace)
    pod.kill_everything()
    pod.empty_output()
    reason: str | None = None
    detail: str | None = None
    if why == "duration_reached":
        reason, detail = why, "The pod reached its deadline and was ended by the cluster."
    elif why == "asked" and not os.path.exists(pod.dir + "/delete"):
        reason = "killed_by_signal"
        detail = "The pod was ended from outside, as at a shutdown of the machine. Submit the job again."
    finish(pod, None if pod.status is None else exit_code_of(pod.status), reason, detail)


def exit_code_of(status: int) -> int:
    """An exit code as shells count: 128 + n for signal n."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def detach(pod_dir: str) -> None:
    """Let go of the terminal and of every file of whoever started this."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    errors = os.open(pod_dir + "/supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number, target in ((0, null), (1, null), (2, errors)):
        os.dup2(target, number)
    os.close(null)
    os.close(errors)


def own(pod_dir: str, tombstone: str, log: str, log_limit: int, ready: int) -> None:
    """In the process that stays: take the pod, or say on `ready` why not."""
    umask = os.umask(0o077)
    ending = EndRequest()
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    try:
        detach(pod_dir)
        other = take_lock(pod_dir, tombstone)
        if other is not None:
            tell(ready, other.encode())
            return
        spec = read_spec(pod_dir)
        reserve_room(pod_dir)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, ending)
        for number in (signal.SIGCHLD, signal.SIGHUP):
            signal.signal(number, lambda _number, _frame: None)
        contained = prctl(PR_SET_CHILD_SUBREAPER, 1)
        pod = PodProcess(pod_dir, tombstone, BoundedLog(log, log_limit), spec, wake_read, contained)
        os.close(os.open(pod_dir + "/started", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        tell(ready, b"exists")
        return
    except FileNotFoundError:
        tell(ready, b"gone")
        return
    except OSError as problem:
        tell(ready, f"failed {problem.strerror} ({problem.filename})".encode("utf-8", "replace"))
        return
    supervise(pod, ending, umask, ready)


def main() -> None:
    """Leave a detached supervisor behind and print what became of it: `started`, `exists`, `gone` or `failed …`."""
    pod_dir, tombstone, log, *limits = sys.argv[1:]
    log_limit, open_files = [*map(int, limits), 0, 0][:2]
    if open_files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    read, write = os.pipe()
    if os.fork() == 0:
        os.close(read)
        own(pod_dir, tombstone, log, log_limit, write)
        return
    os.close(write)
    with open(read, "rb") as file:
        answer = file.read()
    os.write(1, answer or b"failed the supervisor ended at once; see supervisor.log in the pod's directory")


if __name__ == "__main__":
    main()

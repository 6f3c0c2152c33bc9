"""The supervisor of one pod: it starts the workload, ends it, and writes how it ended.

Run as `python -I -S supervisor.py POD_DIR TOMBSTONE LOG [LOG_LIMIT [OPEN_FILES]]`: the bytes of output to keep, and the
workload's soft limit of open files; 0 is none. It starts once per pod, so it imports little of the standard library,
and only the modules written for it. It has its own session and outlives the control plane, which finds it through the
pod's directory:

- `lock`      an exclusive flock for as long as the supervisor lives. Its holder owns the pod.
- `started`   created once (O_EXCL) before anything runs; if it exists, nothing is ever started again.
- `spec`      what to run (mode 0600, see `read_spec`); never in argv or in the environment of this process.
- `secrets/`  values of secrets (see `secret_files`): variables until they are read here, files until the end.
- `deadline`  seconds since the epoch; read again before the pod is ended, so it may change.
- `delete`    the deletion request: seconds of grace. After its end the pod's directory is moved to its tombstone.
- `state.json`, `exit.json` what runs, and how it ended; replaced atomically. The room for exit.json is reserved before
  the start, so that a workload that fills the disk does not hide its end.
- `entrance`  the socket for programs and terminals of sessions, see `sessions`.
- `output`    the pipe for the workload's output. The supervisor copies it to the log, which keeps at most LOG_LIMIT
  bytes (see `bounded_log`) or those in the file `log_limit`. Output that a full disk does not take is dropped; the
  workload is not affected.

On Linux all descendants stay within reach (PR_SET_CHILD_SUBREAPER), also daemons. Elsewhere only the workload's process
group is ended, and state.json has `"contained": false`.
"""

# ruff: noqa: PTH100, PTH104, PTH110, PTH116, PTH123
# Part of the supervisor, which starts once per pod: importing pathlib would cost 5 ms.

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
from reservation_core.adapters.local.kernel import (
    CAP_SYS_RESOURCE,
    PR_SET_CHILD_SUBREAPER,
    boot_id,
    drop_capability,
    exit_code_of,
    prctl,
)
from reservation_core.adapters.local.output_times import OutputTimes
from reservation_core.adapters.local.pod_files import (
    as_json,
    read_seconds,
    read_spec,
    reserve_room,
    tidy,
    write_atomically,
)
from reservation_core.adapters.local.secret_files import read_variables, remove_secrets, remove_variables
from reservation_core.adapters.local.workload import NOT_EXECUTABLE, EndRequest, PodProcess

LOCK_PATIENCE_S = 10.0


def take_lock(pod_dir: str, tombstone: str) -> str | None:
    """Become the pod's owner; return None, or why not: `exists` or `gone`."""
    fd = os.open(pod_dir + "/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    patience = time.monotonic() + LOCK_PATIENCE_S
    while True:
        if os.path.exists(pod_dir + "/started"):
            return "exists"
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            # Another supervisor is starting, or another process removes the pod: both take moments.
            if time.monotonic() > patience:
                return "exists"
            time.sleep(0.005)
    # From here on no other process removes the directory; it may have been removed before, or created after a removal.
    try:
        here, mine = os.stat(pod_dir + "/lock"), os.fstat(fd)
    except FileNotFoundError:
        return "gone"
    if (here.st_dev, here.st_ino) != (mine.st_dev, mine.st_ino) or os.path.exists(tombstone):
        return "gone"
    # A pod that is deleted before it starts never runs.
    return "gone" if os.path.exists(pod_dir + "/delete") else None


def finish(pod: PodProcess, exit_code: int | None, reason: str | None, detail: str | None) -> None:
    """Remove secrets, write exit.json, with retries while the disk is full; then remove the pod if `delete` exists."""
    remove_secrets(pod.dir)
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
                break  # the exit is no longer needed, and renaming the directory needs no room
            pod.sleep(0.5)
    # Checked after writing exit.json: a later caller sees exit.json and removes the pod itself.
    if os.path.exists(pod.dir + "/delete"):
        os.rename(pod.dir, pod.tombstone)
        tidy(pod.tombstone)


def report(ready: int, answer: bytes) -> None:
    """Answer the starting process, which may have been killed."""
    try:
        os.write(ready, answer)
        os.close(ready)
    except BrokenPipeError:
        return


def supervise(pod: PodProcess, ending: EndRequest, umask: int, ready: int) -> None:
    """Run the pod from its start to its end."""
    try:
        refused = pod.start(umask)
    except OSError as error:
        refused = NOT_EXECUTABLE, f"the machine could not start it: {error.strerror}"
    report(ready, b"started")
    if refused is not None:
        pod.kill_everything()
        pod.empty_output()
        problem = f"The pod did not start: {refused[1]}. Correct the job and submit it again."
        pod.log.write_line(problem)
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


def detach(pod_dir: str) -> None:
    """Detach from the terminal and the files of the starting process."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    errors = os.open(pod_dir + "/supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number, target in ((0, null), (1, null), (2, errors)):
        os.dup2(target, number)
    os.close(null)
    os.close(errors)


def own(pod_dir: str, tombstone: str, log: str, log_limit: int, ready: int) -> None:
    """Own and supervise the pod in the process that stays, or write to `ready` why not."""
    umask = os.umask(0o077)
    ending = EndRequest()
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    try:
        detach(pod_dir)
        other = take_lock(pod_dir, tombstone)
        if other is not None:
            report(ready, other.encode())
            return
        spec = read_spec(pod_dir)
        spec.env.update(read_variables(pod_dir))
        reserve_room(pod_dir)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, ending)
        for number in (signal.SIGCHLD, signal.SIGHUP):
            signal.signal(number, lambda _number, _frame: None)
        contained = prctl(PR_SET_CHILD_SUBREAPER, 1)
        pod = PodProcess(pod_dir, tombstone, BoundedLog(log, log_limit, OutputTimes(log)), spec, wake_read, contained)
        os.close(os.open(pod_dir + "/started", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        remove_variables(pod_dir)
    except FileExistsError:
        report(ready, b"exists")
        return
    except FileNotFoundError:
        report(ready, b"gone")
        return
    except OSError as problem:
        report(ready, f"failed {problem.strerror} ({problem.filename})".encode("utf-8", "replace"))
        return
    supervise(pod, ending, umask, ready)


def enter_cgroup(cgroup: str) -> None:
    """Move this process, and all that it starts, into a control group."""
    with open(cgroup + "/cgroup.procs", "wb", 0) as file:
        file.write(b"0")


def main() -> None:
    """Start a detached supervisor and print the result: `started`, `exists`, `gone` or `failed …`."""
    pod_dir, tombstone, log, *limits = sys.argv[1:]
    log_limit, open_files = [*map(int, limits[:2]), 0, 0][:2]
    for cgroup in limits[2:]:
        if cgroup:
            enter_cgroup(cgroup)
    if open_files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    drop_capability(CAP_SYS_RESOURCE)  # who has it passes quotas of disks, and takes what file systems keep for root
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

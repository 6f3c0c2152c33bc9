"""The local cluster's files: a directory per pod while it exists, then a tombstone, and its log.

`pods/<name>/` exists as long as the pod (`supervisor.py` lists its files), `tombstones/<name>/` for a day after it is
gone, and the log (see `bounded_log`) in `logs/` from the start on. A pod's directory is created in `staging/` and
renamed, and removed by renaming it to its tombstone, so a kill in between leaves no half-made directory.

The holder of the flock on `pods/<name>/lock` owns the pod: its supervisor as long as it lives. Only without a
supervisor may others kill its orphans, write its `exit.json` or remove it. All methods block.
"""

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from reservation_core.adapters.local.disks.disk_folders import link_disks
from reservation_core.adapters.local.machine_times import MachineTimes
from reservation_core.adapters.local.pod_files import OUTPUT, as_json, tidy, write_atomically
from reservation_core.adapters.local.processes import MARKER, ProcessId, is_running, kill_orphans, send_signal
from reservation_core.adapters.local.secret_files import folder_of_files, remove_secrets, write_secrets
from reservation_core.domain.disks.disk_uses import DISKS_VARIABLE
from reservation_core.domain.model import PodHolding, PodName, PodPhase, PodSpec, PodStatus, PodWorkload, Reason
from reservation_core.domain.sessions.secret_uses import FILES_VARIABLE
from reservation_core.domain.statuses import ReasonCode
from reservation_core.ports.cluster import PodNotNowError, PodRefusedError

_POD_NAME = re.compile(r"[a-z0-9]{1,16}-[a-z0-9]{1,64}(\.[0-9]{1,4})?-[0-9]{1,9}-[0-9]{1,9}")
_BASE_ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/", "LANG": "C.UTF-8", "USER": "nobody"}
_TOMBSTONE_AGE = timedelta(days=1)
_ORPHANS_PATIENCE_S = 5.0
_REMOVE_PATIENCE_S = 2.0
_STAGED = timedelta(minutes=1)
_DISKS = "disks"
_FILES_PROGRAM = "gpu_dev.sync.inside"
_LOST = "The pod's supervisor ended without a report, so the rest of the pod was ended. Submit the job again."


def is_pod_name(name: str) -> bool:
    """Whether a name has a pod's syntax, and so may be part of a path."""
    return _POD_NAME.fullmatch(name) is not None


class PodDirectories:
    """The directories below `home`. Methods may raise OSError; an error never counts as a pod's removal."""

    def __init__(self, home: Path, times: MachineTimes) -> None:
        self._times = times
        self.home = home.absolute()
        self.pods = self.home / "pods"
        self.tombstones = self.home / "tombstones"
        self.logs = self.home / "logs"
        self._staging = self.home / "staging"
        # Supervisors that ran when last observed: observing these again costs two system calls.
        self._running: dict[str, tuple[ProcessId, PodStatus]] = {}

    def prepare(self, now: datetime) -> None:
        """Create the directories, for this user alone, and remove secrets that a killed process has left."""
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        for directory in (self.pods, self.tombstones, self.logs, self._staging):
            directory.mkdir(mode=0o700, exist_ok=True)
        self._remove_secrets_left(now)

    def names(self) -> list[str]:
        """The existing pods, including finished ones."""
        return sorted(name for name in os.listdir(self.pods) if is_pod_name(name))  # noqa: PTH208

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def publish(self, spec: PodSpec) -> bool:
        """Create a pod's directory, unless the pod exists or ever did; return whether it may have to be started.

        Raises PodRefusedError for text that no process can receive, PodNotNowError while a disk is not made.
        """
        pod = str(spec.name)
        if not is_pod_name(pod):
            raise PodRefusedError(Reason(ReasonCode.START_FAILED, f"{pod!r} is no name for a pod."))
        if (self.tombstones / pod).exists():
            return False
        directory = self.pods / pod
        if directory.exists():
            return not (directory / "started").exists()
        content = _spec_fields(spec, directory)
        staging = Path(tempfile.mkdtemp(prefix=f"{pod}.", dir=self._staging))
        try:
            _write(staging / "spec", content)
            for name, at in self._deadline_files(spec.deadline):
                _write(staging / name, at)
            _write(staging / "lock", b"")
            _write(staging / "holding", _holding_document(spec))
            if spec.secrets:
                _write_secrets(staging, spec)
            link_disks(self.home, staging / _DISKS, spec.workload.disks)
            # Reserves room for the deletion request: a workload that fills the disk must not keep its GPUs.
            _write(staging / "delete.new", b" " * 32)
            (staging / "scratch").mkdir(mode=0o700)
            staging.rename(directory)
        except PodNotNowError:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        except OSError as problem:
            shutil.rmtree(staging, ignore_errors=True)
            if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return not (directory / "started").exists()
        return True

    def observe(self, name: str) -> PodStatus | None:
        """The state of a pod now; None when it is provably gone. Finishes the work of a killed process."""
        directory = self.pods / name
        known = self._running.get(name)
        if known is not None and not _any_exists(directory, "exit.json", "delete") and is_running(known[0]):
            return known[1]
        ended = self._ended(directory)
        if ended is not None:
            if (directory / "delete").exists():
                return None if self._remove(name) else ended
            return ended
        state = _read_json(directory / "state.json")
        if state is None and not (directory / "started").exists():
            return self._not_started(name)
        status = self._status_from(directory, state)
        supervisor = _process(state, "supervisor")
        if supervisor is None or not is_running(supervisor):
            return self._without_supervisor(name, status, state)
        if status.phase is PodPhase.RUNNING:
            self._running[name] = (supervisor, status)
        if (directory / "delete").exists():
            # The asking process may have been killed before it could send the signal.
            send_signal(supervisor, signal.SIGTERM)
        return status

    def final_status(self, name: str) -> PodStatus | None:
        """The final status of a removed pod, from its tombstone."""
        return self._ended(self.tombstones / name)

    def request_removal(self, name: str, grace: timedelta) -> None:
        """Make a pod end and be removed; unknown names are ignored."""
        directory = self.pods / name
        until = time.monotonic() + _REMOVE_PATIENCE_S
        with contextlib.suppress(FileNotFoundError):
            write_atomically(str(directory / "delete"), repr(max(0.0, grace.total_seconds())).encode())
        while directory.exists() and time.monotonic() < until:
            if not (directory / "started").exists() or (directory / "exit.json").exists():
                # Finished or not started; its supervisor may be about to end or to start, which takes moments.
                if self._remove(name):
                    return
            else:
                supervisor = _process(_read_json(directory / "state.json"), "supervisor")
                if supervisor is not None and is_running(supervisor) is not False:
                    send_signal(supervisor, signal.SIGTERM)
                    send_signal(supervisor, signal.SIGCONT)
                    return
                if self.observe(name) is None:
                    return
            time.sleep(0.005)

    def signal_workload(self, name: str, number: int) -> None:
        """Signal a running pod's command, which is its first process; unknown names are ignored."""
        workload = _process(_read_json(self.pods / name / "state.json"), "workload")
        if workload is not None:
            send_signal(workload, number)

    def move_deadline(self, name: str, deadline: datetime) -> None:
        """Change when the supervisor ends the pod by itself; unknown names are ignored."""
        with contextlib.suppress(FileNotFoundError):
            for file, at in self._deadline_files(deadline):
                write_atomically(str(self.pods / name / file), at)

    def _deadline_files(self, deadline: datetime) -> list[tuple[str, bytes]]:
        """The deadline in seconds since 1970, for old supervisors, and since boot."""
        by_clock, since_boot = self._times.machine_time(deadline)
        return [("deadline", repr(by_clock).encode()), ("deadline_boot", repr(since_boot).encode())]

    def prune(self, now: datetime) -> None:
        """Remove tombstones and half-made directories that are older than a day."""
        for directory in (self.tombstones, self._staging):
            for entry in os.scandir(directory):
                with contextlib.suppress(FileNotFoundError):
                    age = now - datetime.fromtimestamp(entry.stat(follow_symlinks=False).st_mtime, UTC)
                    if age > _TOMBSTONE_AGE:
                        shutil.rmtree(entry.path, ignore_errors=True)

    def _remove_secrets_left(self, now: datetime) -> None:
        """Remove secrets of pods that were being created or removed by a process that was killed."""
        for name in os.listdir(self.tombstones):  # noqa: PTH208
            remove_secrets(str(self.tombstones / name))
        for entry in os.scandir(self._staging):
            with contextlib.suppress(FileNotFoundError):
                # Another process may be creating a younger one now.
                if now - datetime.fromtimestamp(entry.stat(follow_symlinks=False).st_mtime, UTC) > _STAGED:
                    remove_secrets(entry.path)

    def _ended(self, directory: Path) -> PodStatus | None:
        ended = _read_json(directory / "exit.json")
        if ended is None:
            return None
        reason = None
        if ended["reason"] is not None:
            reason = Reason(ReasonCode(ended["reason"]), ended["detail"])
        return PodStatus(
            PodName.parse(directory.name),
            PodPhase.FINISHED,
            started_at=self._times.ledger_time(ended, "started_at"),
            finished_at=self._times.ledger_time(ended, "finished_at"),
            exit_code=ended["exit_code"],
            reason=reason,
            holding=_holding(directory),
        )

    def _status_from(self, directory: Path, state: dict[str, Any] | None) -> PodStatus:
        started_at = None if state is None else self._times.ledger_time(state, "started_at")
        phase = PodPhase.PENDING if started_at is None else PodPhase.RUNNING
        return PodStatus(PodName.parse(directory.name), phase, started_at=started_at, holding=_holding(directory))

    def _not_started(self, name: str) -> PodStatus | None:
        directory = self.pods / name
        if not directory.exists():
            self._running.pop(name, None)
            self.pods.stat()  # raises if the whole home is missing, which says nothing about its pods
            return None
        if (self.tombstones / name).exists():
            # Created late, after the removal: no supervisor starts it, so it counts as gone even before it is removed.
            self._remove(name)
            return None
        if (directory / "delete").exists() and self._remove(name):
            return None
        return PodStatus(PodName.parse(name), PodPhase.PENDING, holding=_holding(directory))

    def _without_supervisor(self, name: str, status: PodStatus, state: dict[str, Any] | None) -> PodStatus | None:
        """Verify that a started pod has lost its supervisor, then kill its orphans and write its end."""
        directory = self.pods / name
        with self._owned(name) as owned:
            if not owned:
                # The supervisor lives, or has just moved the pod to its tombstone, or another process cleans up.
                return status if directory.exists() else self._not_started(name)
            ended = self._ended(directory)
            if ended is not None:
                return ended
            if not kill_orphans(name, directory / OUTPUT, _process(state, "workload"), _ORPHANS_PATIENCE_S):
                return status
            remove_secrets(str(directory))
            written = state or {}
            fields: dict[str, str | float | bool | None] = {
                "exit_code": None,
                "started_at": written.get("started_at"),
                "started_at_boot": written.get("started_at_boot"),
                "boot_id": written.get("boot_id"),
                "finished_at": None,
                "reason": ReasonCode.POD_LOST.value,
                "detail": _LOST,
            }
            write_atomically(str(directory / "exit.json"), as_json(fields))
        return self.observe(name)

    def _remove(self, name: str) -> bool:
        """Move a finished or unstarted pod to its tombstone. False while a supervisor owns it."""
        directory, tombstone = self.pods / name, self.tombstones / name
        with self._owned(name) as owned:
            if not owned:
                return not directory.exists()
            if (directory / "started").exists() and not (directory / "exit.json").exists():
                return False
            try:
                directory.rename(tombstone)
            except OSError as problem:
                if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                # Created again during the removal, and therefore never started.
                shutil.rmtree(directory, ignore_errors=True)
        self._running.pop(name, None)
        tidy(str(tombstone))
        return True

    @contextlib.contextmanager
    def _owned(self, name: str) -> Iterator[bool]:
        """Own the pod during the block; false when another process owns it or it does not exist."""
        path = self.pods / name / "lock"
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            yield False
            return
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                owned = os.path.samestat(os.fstat(fd), path.stat())
            except (BlockingIOError, FileNotFoundError):
                owned = False
            yield owned
        finally:
            os.close(fd)


def _command_of(workload: PodWorkload) -> tuple[str, ...]:
    """The command, within the program that brings the job's files and keeps them."""
    if workload.sync is None:
        return workload.command
    found = find_spec(_FILES_PROGRAM)
    if found is None or found.origin is None:
        detail = "This server's installation lacks the program that gives jobs their files."
        raise PodRefusedError(Reason(ReasonCode.START_FAILED, detail))
    return (sys.executable, "-I", "-S", found.origin, *workload.command)


def _spec_fields(spec: PodSpec, directory: Path) -> bytes:
    """The content of `spec`, without secrets; raises PodRefusedError for NULs, which a process can't receive."""
    base = {name: os.environ.get(name, default) for name, default in _BASE_ENV.items()}
    env = {**base, **dict(spec.env), MARKER: str(spec.name)}
    if any(secret.use.path is not None for secret in spec.secrets):
        env[FILES_VARIABLE] = folder_of_files(str(directory))
    if spec.workload.disks:
        env[DISKS_VARIABLE] = str(directory / _DISKS)
    fields = [str(spec.name), repr(max(0.0, spec.grace.total_seconds())), spec.workload.working_dir or ""]
    command = _command_of(spec.workload)
    fields += [str(len(command)), *command]
    fields += [str(len(env)), *(text for variable in env.items() for text in variable)]
    if any("\0" in field for field in fields):
        detail = "The command, its variables or its working directory contain a NUL character. Remove it."
        raise PodRefusedError(Reason(ReasonCode.START_FAILED, detail))
    try:
        return b"".join(os.fsencode(field) + b"\0" for field in fields)
    except UnicodeEncodeError as problem:
        detail = "The command, its variables or its working directory contain text that has no UTF-8 form. Correct it."
        raise PodRefusedError(Reason(ReasonCode.START_FAILED, detail)) from problem


def _write_secrets(pod_dir: Path, spec: PodSpec) -> None:
    variables = {secret.use.env: secret.value for secret in spec.secrets if secret.use.env is not None}
    files = {secret.use.path: secret.value for secret in spec.secrets if secret.use.path is not None}
    write_secrets(str(pod_dir), variables, files)


def _any_exists(directory: Path, *names: str) -> bool:
    return any(os.path.exists(f"{directory}/{name}") for name in names)  # noqa: PTH110 -- called ten times a second


def _write(path: Path, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(content)


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        fields: dict[str, Any] = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    return fields


def _process(state: dict[str, Any] | None, who: str) -> ProcessId | None:
    if state is None or state[f"{who}_pid"] is None:
        return None
    return ProcessId(state[f"{who}_pid"], state[f"{who}_ticks"], state["boot_id"])


def _holding_document(spec: PodSpec) -> bytes:
    """The content of `holding`, from which a ledger that lacks the pod adopts it; without user input."""
    starts_at, ends_at = (None if at is None else at.timestamp() for at in (spec.starts_at, spec.ends_at))
    fields = {"node": spec.node, "gpu_indices": spec.gpu_indices, "pods": spec.pods}
    return json.dumps({**fields, "starts_at": starts_at, "ends_at": ends_at}).encode()


def _holding(directory: Path) -> PodHolding | None:
    """The GPUs and times of a pod; None when they are unknown or the pod is being removed."""
    fields = _read_json(directory / "holding")
    if fields is None or fields["starts_at"] is None or fields["ends_at"] is None:
        return None
    starts_at, ends_at = (datetime.fromtimestamp(fields[key], UTC) for key in ("starts_at", "ends_at"))
    return PodHolding(fields["node"], tuple(fields["gpu_indices"]), fields["pods"], starts_at, ends_at)

"""Processes of pods: which are alive, to which pod they belong, and killing orphans of a dead supervisor.

Pids are reused, so a process is identified by its pid and start time, within one boot.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

from reservation_core.adapters.local import kernel

MARKER = "GPU_DEV_POD"
"""The environment variable that marks a pod's processes; its value is the pod's name."""


@cache
def boot_id() -> str | None:
    """The id of this boot; None where it is unknown."""
    return kernel.boot_id()


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process's identity: pid, start in clock ticks since boot (None without /proc), and boot id."""

    pid: int
    ticks: int | None
    boot: str | None


def is_running(process: ProcessId) -> bool | None:
    """Whether the process still runs (a zombie does not); None without /proc."""
    if process.ticks is None:
        return None
    if process.boot != boot_id():
        return False
    try:
        fields = Path(f"/proc/{process.pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return int(fields[19]) == process.ticks and fields[0] not in (b"Z", b"X")


def send_signal(process: ProcessId, number: int) -> None:
    """Signal exactly this process, unless it is gone or its pid was reused."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if not sys.platform.startswith("linux"):
            os.kill(process.pid, number)
            return
        fd = os.pidfd_open(process.pid)
        try:
            if is_running(process):  # checked after opening the descriptor, which pins the process
                signal.pidfd_send_signal(fd, number)
        finally:
            os.close(fd)


def is_pod_process(pid: int) -> bool:
    """Whether a process or one of its ancestors carries a pod's marker. False for a process that is gone."""
    try:
        process = psutil.Process(pid)
        family = [process, *process.parents()]
    except psutil.Error:
        return False
    return any(_marker(member.pid) is not None for member in family)


def kill_orphans(pod: str, output: Path, workload: ProcessId | None, patience_s: float) -> bool:
    """SIGKILL the orphans of a pod whose supervisor died. Blocks; returns whether provably none is left.

    Orphans carry the pod's marker, belong to the workload's session, print to the pod's output, or descend from such a
    process. Only a daemon that gave up all of these escapes.
    """
    until = time.monotonic() + patience_s
    pause = 0.002
    while True:
        orphans = _orphans(pod, output, workload)
        if not orphans:
            return True
        for orphan in orphans:
            send_signal(orphan, signal.SIGKILL)
        if time.monotonic() > until:
            return False
        time.sleep(pause)
        pause = min(pause * 2, 0.1)


@dataclass(frozen=True, slots=True)
class _Process:
    id: ProcessId
    parent: int
    session: int


def _process_table() -> dict[int, _Process]:
    """All processes except zombies; empty without /proc."""
    boot = boot_id()
    table: dict[int, _Process] = {}
    if boot is None:
        return table
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            fields = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] not in (b"Z", b"X"):
            pid = int(entry.name)
            table[pid] = _Process(ProcessId(pid, int(fields[19]), boot), int(fields[1]), int(fields[3]))
    return table


def _orphans(pod: str, output: Path, workload: ProcessId | None) -> list[ProcessId]:
    table = _process_table()
    leader = None if workload is None else _session_of(workload, table)
    pids = {
        pid
        for pid, process in table.items()
        if (leader is not None and process.session == leader.pid and (process.id.ticks or 0) >= (leader.ticks or 0))
        or _marker(pid) == pod
        or _prints_into(pid, output)
    }
    return [table[pid].id for pid in _with_children(pids, table) if pid != os.getpid()]


def _session_of(workload: ProcessId, table: dict[int, _Process]) -> ProcessId | None:
    """The workload as its session's leader, unless its pid was reused."""
    if workload.boot != boot_id():
        return None
    namesake = table.get(workload.pid)
    return workload if namesake is None or namesake.id == workload else None


def _with_children(pids: Iterable[int], table: dict[int, _Process]) -> set[int]:
    family = set(pids)
    while children := {pid for pid, process in table.items() if process.parent in family} - family:
        family |= children
    return family


def _marker(pid: int) -> str | None:
    """The pod in a process's marker; None for unreadable processes of other users."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    prefix = f"{MARKER}=".encode()
    for variable in environment.split(b"\0"):
        if variable.startswith(prefix):
            return os.fsdecode(variable[len(prefix) :])
    return None


def _prints_into(pid: int, output: Path) -> bool:
    for number in (1, 2):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/fd/{number}").readlink() == output:
                return True
    return False

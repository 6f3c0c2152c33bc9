"""Processes of pods: who is alive, who belongs to which pod, and ending those that lost their supervisor.

A pid alone names nobody, since pids are used again: a process is known by pid and start time, in one boot.
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
"""The variable by which a process of a pod is recognised; its value is the pod's name."""


@cache
def boot_id() -> str | None:
    """Which boot of the machine this is; None where it can't be known."""
    return kernel.boot_id()


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process that was: pid, start in clock ticks since boot (None where there is no /proc), and the boot."""

    pid: int
    ticks: int | None
    boot: str | None


def is_running(process: ProcessId) -> bool | None:
    """Whether the process still runs (a zombie does not); None when this machine can't tell."""
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
    """Signal exactly this process; nothing happens when it is gone or its pid names another one by now."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if not sys.platform.startswith("linux"):
            os.kill(process.pid, number)
            return
        fd = os.pidfd_open(process.pid)
        try:
            if is_running(process):  # asked after the descriptor was taken: it can't be anybody else now
                signal.pidfd_send_signal(fd, number)
        finally:
            os.close(fd)


def belongs_to_a_pod(pid: int) -> bool:
    """Whether a process, or one that it comes from, carries a pod's marker. False for one that is gone."""
    try:
        process = psutil.Process(pid)
        family = [process, *process.parents()]
    except psutil.Error:
        return False
    return any(_marker(member.pid) is not None for member in family)


def end_strays(pod: str, output: Path, workload: ProcessId | None, patience_s: float) -> bool:
    """SIGKILL what is left of a pod whose supervisor died. Blocks; returns whether provably nothing is left.

    Found are processes that carry the pod's marker, belong to the workload's session, print into the pod's output, or
    come from one of these. Out of reach is only a daemon that gave up all of that, and only once its supervisor was
    killed.
    """
    until = time.monotonic() + patience_s
    pause = 0.002
    while True:
        strays = _strays(pod, output, workload)
        if not strays:
            return True
        for stray in strays:
            send_signal(stray, signal.SIGKILL)
        if time.monotonic() > until:
            return False
        time.sleep(pause)
        pause = min(pause * 2, 0.1)


@dataclass(frozen=True, slots=True)
class _Seen:
    """One line of the process table."""

    id: ProcessId
    parent: int
    session: int


def _process_table() -> dict[int, _Seen]:
    """Every process that is not a zombie; empty without /proc."""
    boot = boot_id()
    table: dict[int, _Seen] = {}
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
            table[pid] = _Seen(ProcessId(pid, int(fields[19]), boot), int(fields[1]), int(fields[3]))
    return table


def _strays(pod: str, output: Path, workload: ProcessId | None) -> list[ProcessId]:
    table = _process_table()
    leader = None if workload is None else _session_of(workload, table)
    found = {
        pid
        for pid, seen in table.items()
        if (leader is not None and seen.session == leader.pid and (seen.id.ticks or 0) >= (leader.ticks or 0))
        or _marker(pid) == pod
        or _prints_into(pid, output)
    }
    return [table[pid].id for pid in _with_children(found, table) if pid != os.getpid()]


def _session_of(workload: ProcessId, table: dict[int, _Seen]) -> ProcessId | None:
    """The workload as its session's leader, unless its pid names another process by now."""
    if workload.boot != boot_id():
        return None
    namesake = table.get(workload.pid)
    return workload if namesake is None or namesake.id == workload else None


def _with_children(found: Iterable[int], table: dict[int, _Seen]) -> set[int]:
    family = set(found)
    grown = bool(family)
    while grown:
        children = {pid for pid, seen in table.items() if seen.parent in family} - family
        family |= children
        grown = bool(children)
    return family


def _marker(pid: int) -> str | None:
    """The pod that a process says it belongs to; None for processes of others, which can't be read."""
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

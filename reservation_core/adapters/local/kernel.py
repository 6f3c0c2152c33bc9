"""System calls of the supervisor: process identities, signals, and the reaping of orphans."""

# ruff: noqa: PTH123, PTH208
# Part of the supervisor, which starts once per pod: importing pathlib would cost 5 ms.

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
CAP_SYS_RESOURCE = 24
_CAPABILITIES_3 = 0x20080522
ON_LINUX = sys.platform.startswith("linux")


def start_ticks(pid: int) -> int | None:
    """The start of a process in clock ticks since boot, which with the pid identifies it. None without /proc."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def boot_id() -> str | None:
    """The id of this boot; pids and ticks are meaningless in another."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return file.read().decode().strip()
    except OSError:
        return None


def prctl(option: int, value: int) -> bool:
    """Call prctl(2); false where it does not exist."""
    if not ON_LINUX:
        return False
    return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)


def drop_capability(number: int) -> None:
    """Take a capability (of the first 32) from this process and from all that it starts, also as root."""
    if not ON_LINUX:
        return
    kernel, header, sets = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(_CAPABILITIES_3, 0), (ctypes.c_uint32 * 6)()
    prctl(PR_CAPBSET_DROP, number)
    if kernel.capget(header, sets) == 0:
        for index in range(3):  # effective, permitted, inheritable
            sets[index] &= ~(1 << number)
        kernel.capset(header, sets)


def signal_process(pid: int, number: int) -> None:
    """Send a signal to a process that may have ended meanwhile."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def descendants(root: int) -> list[int]:
    """Every living process below `root`, from one scan of /proc."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                parents[int(entry)] = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
    below = {root}
    ordered: list[int] = []
    while new := [pid for pid, parent in parents.items() if parent in below and pid not in below]:
        below.update(new)
        ordered += new
    return ordered


def signal_group(group: int, number: int) -> None:
    """Send a signal to a process group that may have ended meanwhile."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


def exit_code_of(status: int) -> int:
    """The exit code as in a shell: 128 + n for signal n."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

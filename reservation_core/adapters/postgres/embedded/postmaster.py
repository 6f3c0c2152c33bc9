"""What a running server says of itself: `postmaster.pid` in its data directory, checked against the process table."""

from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class Postmaster:
    """A server process that provably works on a data directory; `ready` once it takes connections."""

    pid: int
    socket_dir: Path
    ready: bool


def find(data: Path) -> Postmaster | None:
    """The live server of a data directory, or None. A pid file left behind, or a pid reused by others, is nothing."""
    lines = _pid_file(data)
    if len(lines) < 5 or not lines[0].strip().isdigit():
        return None
    pid = int(lines[0])
    if not _works_on(pid, data):
        return None
    status = lines[7].strip() if len(lines) > 7 else ""
    return Postmaster(pid, Path(lines[4]), ready=status == "ready")


def forget_stale(data: Path) -> None:
    """Remove a pid file whose pid now belongs to a process that is no server of this data directory.

    PostgreSQL itself copes with a dead pid, but refuses to start while any process has that number: after a restart of
    the machine or container that is likely. The file stays while any process still works in the directory.
    """
    lines = _pid_file(data)
    if not lines or not lines[0].strip().isdigit():
        return
    pid = int(lines[0])
    if psutil.pid_exists(pid) and not _works_on(pid, data) and not orphans(data):
        (data / "postmaster.pid").unlink(missing_ok=True)


def orphans(data: Path) -> list[int]:
    """Pids of processes that work in the data directory: a server's children outlive its `kill -9` for a moment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(data):
                found.append(process.pid)
        except (psutil.Error, OSError):
            # Gone meanwhile, or not ours to look at: then it is not our server's either.
            continue
    return found


def _pid_file(data: Path) -> list[str]:
    try:
        return (data / "postmaster.pid").read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []


def _works_on(pid: int, data: Path) -> bool:
    """Whether a live process is a PostgreSQL server of this data directory."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        words = process.cmdline()
    except psutil.Error:
        return False
    return bool(words) and Path(words[0]).name == "postgres" and str(data) in words

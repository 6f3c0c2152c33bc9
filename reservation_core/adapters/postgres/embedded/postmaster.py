"""Find a running server by `postmaster.pid` in its data directory, checked against the process table."""

from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class Postmaster:
    """A server process that provably uses a data directory; `ready` once it accepts connections."""

    pid: int
    socket_dir: Path
    ready: bool


def find(data: Path) -> Postmaster | None:
    """The live server of a data directory. None also for a stale pid file or a reused pid."""
    lines = _pid_file(data)
    if len(lines) < 5 or not lines[0].strip().isdigit():
        return None
    pid = int(lines[0])
    if not _works_on(pid, data):
        return None
    status = lines[7].strip() if len(lines) > 7 else ""
    return Postmaster(pid, Path(lines[4]), ready=status == "ready")


def forget_stale(data: Path) -> None:
    """Remove a stale pid file whose pid was reused by another process.

    PostgreSQL handles a dead pid, but refuses to start while any process has that pid, which is likely after a restart
    of the machine or container. The file stays while any process uses the directory.
    """
    lines = _pid_file(data)
    if not lines or not lines[0].strip().isdigit():
        return
    pid = int(lines[0])
    if psutil.pid_exists(pid) and not _works_on(pid, data) and not orphans(data):
        (data / "postmaster.pid").unlink(missing_ok=True)


def orphans(data: Path) -> list[int]:
    """Pids of processes that use the data directory: a server's children outlive its `kill -9` for a moment."""
    pids = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(data):
                pids.append(process.pid)
        except (psutil.Error, OSError):
            # The process has ended, or belongs to another user and so not to our server.
            continue
    return pids


def _pid_file(data: Path) -> list[str]:
    try:
        return (data / "postmaster.pid").read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []


def _works_on(pid: int, data: Path) -> bool:
    """Whether the pid is a live PostgreSQL server of this data directory."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        words = process.cmdline()
    except psutil.Error:
        return False
    return bool(words) and Path(words[0]).name == "postgres" and str(data) in words

"""Terminals that a local pod keeps, from their sockets' names, their descriptions and /proc. All functions block."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from reservation_core.adapters.local.sessions.wire import DESCRIPTION
from reservation_core.ports.sessions.pod_streams import KeptTerminal

_NS = 1_000_000_000
_MOST_CHARACTERS = 200
_PARENT, _FOREGROUND = 1, 5
"""Where /proc/PID/stat has the parent and the foreground process group, after the state."""


class Socket(NamedTuple):
    """The socket of a terminal. Without a description `name`, `pid` and `person` are empty."""

    file: str
    name: str = ""
    pid: str = ""
    person: str = ""


def sockets_in(folder: Path) -> list[Socket]:
    """The sockets of terminals, newest first; some may be of terminals that have ended."""
    try:
        files = sorted((entry.name for entry in os.scandir(folder)), reverse=True)
    except FileNotFoundError:
        return []
    return [_described(folder, file) for file in files if not file.endswith(DESCRIPTION)]


def kept_terminals(folder: Path) -> list[KeptTerminal]:
    """The terminals whose programs run, newest first, as far as they have descriptions."""
    found = []
    for socket in sockets_in(folder):
        begun, _, keeper = socket.file.partition("-")
        program = _foreground_program(socket.pid, keeper)
        if program is not None:
            opened_at = datetime.fromtimestamp(int(begun) // _NS, UTC)
            found.append(KeptTerminal(socket.file, socket.name, socket.person, opened_at, program))
    return found


def _described(folder: Path, file: str) -> Socket:
    try:
        name, pid, person = os.readlink(folder / f"{file}{DESCRIPTION}").split("/", 2)  # noqa: PTH115
    except (OSError, ValueError):  # of an earlier version, or it begins or ends at this moment
        return Socket(file)
    return Socket(file, name, pid, person)


def _foreground_program(pid: str, keeper: str) -> str | None:
    """The command line in the foreground of a terminal; None if its program, a child of `keeper`, has ended."""
    stat = _fields(pid)
    if stat is None or stat[_PARENT] != keeper:
        return None
    words = _command_line(stat[_FOREGROUND]) or _command_line(pid)
    return words.removeprefix("-")[:_MOST_CHARACTERS]


def _fields(pid: str) -> list[str] | None:
    try:
        return Path("/proc", pid, "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def _command_line(pid: str) -> str:
    try:
        words = Path("/proc", pid, "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return ""
    text = " ".join(words).strip()
    return "".join(character if character.isprintable() else " " for character in text)

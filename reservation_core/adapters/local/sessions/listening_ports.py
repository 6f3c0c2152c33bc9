"""Ports and addresses at which processes of a pod accept TCP connections, from Linux's /proc. All functions block."""

import os
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from reservation_core.adapters.local.kernel import descendants
from reservation_core.ports.sessions.pod_streams import ListeningPort

_LISTENS = "0A"
_SOCKET = re.compile(r"socket:\[(\d+)\]")
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what others listen on


def listening_addresses(root: int, port: int) -> list[str]:
    """The addresses by which processes below `root` can be reached at a port."""
    listeners = {inode: address for address, number, inode in _listeners() if number == port}
    if not listeners:
        return []
    owned = {inode for pid in descendants(root) for inode in _sockets_of(pid)}
    return [_ANY.get(address, address) for inode, address in listeners.items() if inode in owned]


def listening_ports(root: int) -> list[ListeningPort]:
    """The ports at which processes below `root` listen, the lowest first, each with the first process that has it."""
    listeners = {inode: number for _, number, inode in _listeners()}
    if not listeners:
        return []
    found: dict[int, str] = {}
    for pid in descendants(root):
        for inode in _sockets_of(pid):
            if inode in listeners:
                found.setdefault(listeners[inode], _name_of(pid))
    return [ListeningPort(number, name) for number, name in sorted(found.items())]


def _name_of(pid: int) -> str:
    try:
        name = Path("/proc", str(pid), "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
    return "".join(character if character.isprintable() else " " for character in name)


def _listeners() -> Iterator[tuple[str, int, str]]:
    for table, family, size in (("tcp", socket.AF_INET, 4), ("tcp6", socket.AF_INET6, 16)):
        with suppress(FileNotFoundError), Path("/proc/net", table).open(encoding="ascii") as lines:
            next(lines)
            for line in lines:
                fields = line.split()
                if fields[3] == _LISTENS:
                    address, _, number = fields[1].partition(":")
                    yield _address(bytes.fromhex(address), family, size), int(number, 16), fields[9]


def _address(raw: bytes, family: socket.AddressFamily, size: int) -> str:
    """An address as the kernel prints it: words of four bytes in the machine's own order."""
    words = (raw[begin : begin + 4] for begin in range(0, size, 4))
    ordered = b"".join(socket.ntohl(int.from_bytes(word, "big")).to_bytes(4, "big") for word in words)
    return socket.inet_ntop(family, ordered)


def _sockets_of(pid: int) -> Iterator[str]:
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208
    except OSError:
        return
    for number in numbers:
        with suppress(OSError):
            if found := _SOCKET.fullmatch(os.readlink(f"/proc/{pid}/fd/{number}")):  # noqa: PTH115
                yield found[1]

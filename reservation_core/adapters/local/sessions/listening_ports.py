"""Ports and addresses at which processes of a pod accept TCP connections, from Linux's /proc. All functions block."""

import math
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from reservation_core.adapters.local.kernel import descendants
from reservation_core.ports.sessions.pod_streams import ListeningPort

_LISTENS, _IS_ASKED = "0A", "03"
_SOCKET = re.compile(r"socket:\[(\d+)\]")
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what others listen on
_IPV4_IN_IPV6 = bytes(10) + b"\xff\xff"
_MOST_KNOWN = 4096
_OTHERS_S = 1.0
"""How long sockets are known to be others': a process of the pod that was just being started is overlooked."""


@dataclass(frozen=True, slots=True)
class _Listeners:
    """The sockets that listen at a port, and those of them that belong to the processes below a root."""

    addresses: Mapping[int, str]
    owned: frozenset[int]
    until: float


class PortOwners:
    """The addresses of pods' ports. The owner of a socket, which a scan of /proc finds, is remembered while it listens.

    A socket has a number (inode) of its own, so one that listens at the same port later is not taken for it.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], _Listeners] = {}

    def addresses(self, root: int, port: int) -> list[str]:
        """The addresses by which processes below `root` can be reached at a port, and no others."""
        addresses = _listeners(port)
        if not addresses:
            return []
        known = self._known.get((root, port))
        if known is None or known.addresses != addresses or known.until < time.monotonic():
            owned = frozenset(inode for pid in descendants(root) for inode in _sockets_of(pid) if inode in addresses)
            until = math.inf if owned == addresses.keys() else time.monotonic() + _OTHERS_S
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[root, port] = _Listeners(addresses, owned, until)
        # Sockets of several pods can share an address (SO_REUSEPORT): nobody knows which one would be reached.
        others = {address for inode, address in addresses.items() if inode not in known.owned}
        return [address for inode, address in addresses.items() if inode in known.owned and address not in others]


def listening_ports(root: int) -> list[ListeningPort]:
    """The ports at which processes below `root` listen, the lowest first, each with the first process that has it."""
    listeners = {inode: number for inode, _, number in _all_listeners()}
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


def _listeners(port: int) -> dict[int, str]:
    """The sockets that listen at a port, by their inodes, with the addresses by which they are reached."""
    return {inode: _ANY.get(address, address) for inode, address, number in _all_listeners() if number == port}


def _all_listeners() -> Iterator[tuple[int, str, int]]:
    """The inode, the address and the port of each socket that listens."""
    for table, family, size in (("tcp", socket.AF_INET, 4), ("tcp6", socket.AF_INET6, 16)):
        with suppress(FileNotFoundError), Path("/proc/net", table).open(encoding="ascii") as lines:
            next(lines)
            for line in lines:
                fields = line.split(maxsplit=10)
                if fields[3] not in (_LISTENS, _IS_ASKED):
                    break  # the kernel lists those that listen first, and there may be thousands of others
                address, _, number = fields[1].partition(":")
                if fields[3] == _LISTENS:
                    yield int(fields[9]), _address(bytes.fromhex(address), family, size), int(number, 16)


def _address(raw: bytes, family: socket.AddressFamily, size: int) -> str:
    """An address as the kernel prints it: words of four bytes in the machine's own order. IPv4 in IPv6 is IPv4."""
    words = (raw[begin : begin + 4] for begin in range(0, size, 4))
    ordered = b"".join(socket.ntohl(int.from_bytes(word, "big")).to_bytes(4, "big") for word in words)
    if ordered.startswith(_IPV4_IN_IPV6):
        return socket.inet_ntop(socket.AF_INET, ordered.removeprefix(_IPV4_IN_IPV6))
    return socket.inet_ntop(family, ordered)


def _sockets_of(pid: int) -> Iterator[int]:
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208
    except OSError:
        return
    for number in numbers:
        with suppress(OSError):
            if found := _SOCKET.fullmatch(os.readlink(f"/proc/{pid}/fd/{number}")):  # noqa: PTH115
                yield int(found[1])

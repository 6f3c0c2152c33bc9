"""Ports for processes that are told theirs before they listen, and that may be away from it for a while.

The kernel gives ports of its own range to whoever asks for any and to every connection that goes out: one that was free
a moment ago need not be by the time a process has started, least of all on a busy machine. These lie outside of it, and
each is one test process's alone until that ends.
"""

import os
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_ALL = range(10_000, 65_536)

_marks: list[int] = []
"""Open files: each is the sign that a port is ours, and goes with this process, however that ends."""


def own_port() -> int:
    """A port where nobody listens, and that no other test is given while this process lives."""
    first, last = (int(part) for part in _RANGE.read_text().split())
    outside = [port for port in _ALL if not first <= port <= last] or [*_ALL]
    begin = os.getpid() * 97 % len(outside)  # each process somewhere else, so that few are asked for in vain
    for port in outside[begin:] + outside[:begin]:
        if _claimed(port) and _is_free(port):
            return port
    raise AssertionError("no port is left")


def _claimed(port: int) -> bool:
    """Whether it is ours from now on; a name that only one socket of this machine can have says so."""
    with socket.socket(socket.AF_UNIX) as mark, suppress(OSError):
        mark.bind(f"\0gpu-dev-test-port-{port}")
        _marks.append(mark.detach())
        return True
    return False


def _is_free(port: int) -> bool:
    with ExitStack() as opened, suppress(OSError):
        for family, anywhere in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
            if family is socket.AF_INET6 and not socket.has_dualstack_ipv6():
                continue
            taken = opened.enter_context(socket.socket(family))
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family is socket.AF_INET6:
                taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            taken.bind((anywhere, port))
        return True
    return False

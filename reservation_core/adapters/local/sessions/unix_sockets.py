"""Unix sockets by folder and name, however long the folder's path is: a socket's own path has at most 107 bytes."""

# Part of the supervisor, which starts once per pod.

import os
from _socket import socket as Socket  # noqa: N812 - it is a class
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def address_in(folder: str, name: str) -> Iterator[str]:
    """The address of a socket in a folder, valid during the block. Raises OSError."""
    if not os.path.isdir("/proc/self/fd"):  # noqa: PTH112
        yield f"{folder}/{name}"
        return
    inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{inside}/{name}"
    finally:
        os.close(inside)


def accept(listening: "Socket") -> int:
    """The descriptor of a connection that waits. Raises BlockingIOError if none does."""
    fd: int = listening._accept()[0]  # type: ignore[attr-defined]  # noqa: SLF001 - what `socket.socket.accept` calls
    return fd
